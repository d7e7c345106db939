"""A driver, its slots and a misbehaving Spark, in one thread with a manual clock.

The classes of the protocol are real; threads, sockets and Spark are simulated. The job is

    source ──▶ sum ──▶ sink          one of each in every slot, records spread over all slots

A record is (source, position). Sums and sinks remember every record, so that their state shows
"exactly once". The world knows what nobody in it knows, and fails an assertion as soon as the
protocol allows something wrong.

Simulated: any order and delay of everything; step tasks that are repeated, duplicated and delayed
beyond the end of their job, with their packets shuffled and duplicated; failing connections;
processes that die, are cut off, sleep, wake up, are started twice; clocks that differ in time and
speed; failing user code; checkpoints that are triggered, aborted and restored. Not simulated:
several pipelines, corrupted bytes, a control line that ends before its process does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.played_jobs import played_job, states_of
from tests.properties.protocol_slots import PIPELINE, SINK, SOURCE, SUM, Answer, Process
from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.errors import SlotLost
from tidegate.core.ids import SubtaskId
from tidegate.protocol.checkpoints.pending import (
    AbortReason,
    AckResult,
    PendingCheckpoint,
    PendingState,
)
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import CheckpointAcknowledged
from tidegate.protocol.packet import FailureMark, Packet
from tidegate.protocol.plan import CheckpointPlan, plan_checkpoint
from tidegate.protocol.region import Region, RegionFails, RegionState, RunStep, StepDone
from tidegate.protocol.slot_pool import (
    CancelLaunch,
    Dismiss,
    Launch,
    SlotGone,
    SlotPool,
    SlotReady,
)
from tidegate.protocol.units import Pending, Sealed, UnitKey
from tidegate.stream.elements import Barrier

LEASE = 10.0
Action = Callable[[], None]


@dataclass(eq=False)
class StepJob:
    """A Spark job for a step: `outputs` are the outputs of its tasks for the next stage."""

    order: RunStep
    barriers: tuple[Barrier, ...]
    addresses: dict[int, Process]
    level: int = -1
    outputs: dict[tuple[int, int], Answer] = field(default_factory=dict)


@dataclass(eq=False)
class Task:
    """One attempt of a Spark task; it may outlive its job."""

    job: StepJob
    level: int
    slot: int
    packets: list[Packet]
    marks: tuple[FailureMark, ...]
    has_delivered: bool = False

    @property
    def key(self) -> UnitKey:
        return UnitKey(self.job.order.attempt, self.job.order.step, self.level)


class World:
    """The whole simulation. `actions` may happen next without any fault."""

    def __init__(self, slots: int, rnd: random.Random) -> None:
        self.slots, self.rnd, self.now = slots, rnd, 0.0
        self.checkpointed = played_job([slots] * 3)
        self.region = Region(PIPELINE, range(slots), max_step_tries=2)
        self.pool = SlotPool(slots, lease=LEASE, now=0.0)
        self.processes: list[Process] = []
        self.by_incarnation: dict[Incarnation, Process] = {}
        self.launches: dict[int, int] = {}
        self.starts: Counter = Counter()
        self.deployments: list[tuple[Process, tuple]] = []
        self.job: StepJob | None = None
        self.tasks: list[Task] = []
        self.runs: set[tuple[int, UnitKey]] = set()
        self.answers: dict[tuple[int, UnitKey], Answer] = {}
        self.next_checkpoint = 1
        self.triggers: list[Barrier] = []
        self.pending: dict[int, PendingCheckpoint] = {}
        self.decided: dict[int, PendingCheckpoint] = {}
        self.restore_point: Checkpoint | None = None
        self.steps_done = 0
        self.carry_out(self.pool.start(self.now))

    # --- what may happen next ---------------------------------------------------------------

    def advance(self, count: int) -> None:
        for _ in range(count):
            actions = list(self.actions())
            if not actions:
                return
            self.rnd.choice(actions)()

    def actions(self) -> Iterator[Action]:
        for process in self.processes:
            if process.to_driver and not process.is_cut_off:
                yield lambda p=process: self.receive(p)
            if process.is_awake and process.to_slot and not process.is_cut_off:
                yield process.receive
            if process.is_awake and process.mailbox:
                yield process.run_mailbox
        for slot in self.launches:
            place = (slot, self.launches[slot])
            running = [p.incarnation for p in self.processes if p.is_alive]
            if not any((each.slot, each.launch) == place for each in running):
                yield lambda s=slot: self.start_process(s)
        for task in self.tasks:
            if task.job.addresses[task.slot].is_asleep:
                continue
            if not task.has_delivered:
                yield lambda t=task: self.deliver(t)
            elif self.fetched(task) is not None:
                yield lambda t=task: self.finish_task(t)
        if self.region.state is RegionState.RUNNING and self.region.step_in_flight is None:
            yield lambda: self.run_step(self.region.begin_step())
        for pending in self.pending.values():
            if pending.is_ready:
                yield lambda p=pending: self.publish(p)

    def pass_time(self, seconds: float) -> None:
        """Send heartbeats, then advance; processes without a lease may notice, and exit."""
        for process in self.processes:
            if process.is_awake and not process.is_cut_off:
                process.beat()
        self.now += seconds
        for process in self.processes:
            if process.is_awake and self.rnd.random() < 0.5 and process.looks_at_its_lease():
                process.die()
        self.carry_out(self.pool.tick(self.now))
        self.deploy_if_possible()

    def recover(self) -> None:
        """Without further faults, the job must continue within a minute."""
        for process in self.processes:
            process.is_cut_off = process.is_asleep = process.user_code_fails = False
        before = self.steps_done
        for _ in range(60):
            self.advance(60)
            self.pass_time(1.0)
            if self.steps_done > before:
                return
        raise AssertionError(f"no step in a minute; the region is {self.region.state.name}")

    # --- the driver -------------------------------------------------------------------------

    def receive(self, process: Process) -> None:
        kind, content = process.to_driver.popleft()
        incarnation = process.incarnation
        if kind == "register":
            instructions = self.pool.registered(incarnation, self.now)
            if self.pool.is_current(incarnation):
                process.to_slot.append(("accepted", LEASE))
            self.carry_out(instructions)
        elif kind == "line ended":
            self.carry_out(self.pool.line_ended(incarnation, self.now))
        elif kind == "beat":
            if self.pool.beat(incarnation, self.now):
                process.to_slot.append(("answer", content))
        elif self.pool.is_current(incarnation):
            self.receive_from_current(process, kind, content)
        self.deploy_if_possible()

    def receive_from_current(self, process: Process, kind: str, content: object) -> None:
        match kind, content:
            case "deployed", attempt:
                self.region.deployed(process.slot, attempt)
            case "ack", CheckpointAcknowledged():
                self.acknowledge(content)
            case "decline", number:
                self.abort_checkpoint(number)

    def carry_out(self, instructions) -> None:
        for instruction in instructions:
            match instruction:
                case Launch(slot, number):
                    self.launches[slot] = number
                    self.starts[slot] = 0
                case CancelLaunch(slot):
                    self.end_spark_job(slot)
                case Dismiss(incarnation, reason):
                    self.by_incarnation[incarnation].to_slot.append(("dismiss", reason))
                case SlotReady(incarnation):
                    self.assert_alone(incarnation)
                case SlotGone(incarnation, reason):
                    self.react(self.region.slot_gone(incarnation.slot, reason))

    def deploy_if_possible(self) -> None:
        ready = self.pool.ready()
        waits = self.region.state in (RegionState.CREATED, RegionState.RESTARTING)
        if waits and ready.keys() == self.region.slots:
            attempt = self.region.deploy()
            self.triggers.clear()
            for incarnation in ready.values():
                message = ("deploy", (attempt, self.restore_point))
                self.by_incarnation[incarnation].to_slot.append(message)
                self.deployments.append((self.by_incarnation[incarnation], message))

    def react(self, decision) -> None:
        match decision:
            case RunStep():
                self.run_step(decision)
            case RegionFails():
                self.job = None
                for number in list(self.pending):
                    self.abort_checkpoint(number, AbortReason.REGION_FAILED)
                self.region.restart()
            case StepDone():
                self.steps_done += 1
                self.assert_exact()

    # --- Spark ------------------------------------------------------------------------------

    def start_process(self, slot: int) -> None:
        incarnation = Incarnation(
            slot, self.launches[slot], self.starts[slot], str(self.rnd.random())
        )
        self.starts[slot] += 1
        process = Process(self, incarnation)
        self.processes.append(process)
        self.by_incarnation[incarnation] = process

    def end_spark_job(self, slot: int) -> None:
        """Spark ends the job of a slot; the process may not notice."""
        self.launches.pop(slot, None)
        self.carry_out(self.pool.job_ended(slot, self.now))

    def run_step(self, order: RunStep) -> None:
        barriers = self.job.barriers if order.tries > 1 and self.job is not None else ()
        if order.tries == 1:
            barriers, self.triggers = tuple(self.triggers), []
        ready = self.pool.ready()
        addresses = {slot: self.by_incarnation[i] for slot, i in ready.items()}
        self.job = StepJob(order, barriers, addresses)
        self.start_stage(self.job)

    def start_stage(self, job: StepJob) -> None:
        job.level += 1
        if job.level > SINK:
            if job is self.job:
                self.job = None
            marks = {
                m.slot: m for (level, _), a in job.outputs.items() if level == SINK for m in a.marks
            }
            causes = [mark.cause for mark in marks.values()]
            self.react(self.region.step_through(job.order.attempt, job.order.step, causes))
            return
        for slot in range(self.slots):
            self.start_task(job, job.level, slot)

    def start_task(self, job: StepJob, level: int, slot: int) -> None:
        outputs = [job.outputs[level - 1, s] for s in range(self.slots)] if level else []
        packets = [packet for output in outputs for packet in output.packets.get(slot, ())]
        packets += [packet for packet in packets if self.rnd.random() < 0.2]
        self.rnd.shuffle(packets)
        marks = tuple({m.slot: m for output in outputs for m in output.marks}.values())
        self.tasks.append(Task(job, level, slot, packets, marks))

    def deliver(self, task: Task) -> None:
        process = task.job.addresses[task.slot]
        if process.is_alive:
            process.deliver(task.key, task.packets, task.marks, task.job.barriers)
        task.has_delivered = True

    def fetched(self, task: Task) -> Answer | None:
        """The result of a task; None while its unit runs."""
        process = task.job.addresses[task.slot]
        if process.is_alive:
            outcome = process.machine.ask(PIPELINE, task.key)
            if isinstance(outcome, Pending):
                return None
            if isinstance(outcome, Sealed):
                known = self.answers.setdefault((task.slot, task.key), outcome.answer)
                assert outcome.answer is known, "the answer of a unit changed"
                return outcome.answer
        return self.out_of_reach(task)

    def out_of_reach(self, task: Task) -> Answer:
        return Answer({}, (*task.marks, FailureMark(task.slot, SlotLost(task.slot, "no answer"))))

    def finish_task(self, task: Task, answer: Answer | None = None) -> None:
        self.tasks.remove(task)
        job = task.job
        job.outputs[task.level, task.slot] = answer or self.fetched(task)
        stage_is_done = all((job.level, slot) in job.outputs for slot in range(self.slots))
        if stage_is_done and task.level == job.level:
            self.start_stage(job)

    # --- checkpoints ------------------------------------------------------------------------

    def plan(self) -> CheckpointPlan:
        return plan_checkpoint(self.checkpointed.graph.vertices, {PIPELINE: self.region})

    def trigger(self) -> None:
        number, self.next_checkpoint = self.next_checkpoint, self.next_checkpoint + 1
        deadline = self.now + 100
        barrier = Barrier(number, self.now)
        self.pending[number] = PendingCheckpoint(barrier, self.plan(), deadline=deadline)
        self.triggers.append(barrier)

    def acknowledge(self, ack: CheckpointAcknowledged) -> None:
        number = ack.checkpoint_id
        pending = self.pending.get(number)
        if pending is not None and pending.acknowledge(ack) is AckResult.ACCEPTED:
            assert pending.state is PendingState.COLLECTING

    def abort_checkpoint(self, number: int, reason: AbortReason = AbortReason.DECLINED) -> None:
        pending = self.pending.get(number)
        if pending is None or pending.abort(reason) is None:
            return
        self.decided[number] = self.pending.pop(number)
        self.triggers = [each for each in self.triggers if each.checkpoint_id != number]
        for incarnation in self.pool.ready().values():
            order = (self.region.attempt, number)
            self.by_incarnation[incarnation].to_slot.append(("abort", order))

    def publish(self, pending: PendingCheckpoint) -> None:
        completed = pending.begin_publication(self.checkpointed, self.now)
        self.assert_consistent(completed)
        pending.published()
        number = completed.checkpoint_id
        self.decided[number] = self.pending.pop(number)
        if self.restore_point is None or number > self.restore_point.checkpoint_id:
            self.restore_point = completed
        for lower in [each for each in self.pending if each < number]:
            self.abort_checkpoint(lower, AbortReason.SUBSUMED)

    # --- what must hold ---------------------------------------------------------------------

    def note_act(self, process: Process) -> None:
        ready = self.pool.ready().get(process.slot, process.incarnation)
        assert ready == process.incarnation, f"{process.incarnation} acts beside {ready}"

    def note_run(self, process: Process, key: UnitKey) -> None:
        unit = (process.slot, key)
        assert unit not in self.runs, f"{unit} ran twice"
        self.runs.add(unit)

    def assert_alone(self, incarnation: Incarnation) -> None:
        for process in self.processes:
            if process.slot == incarnation.slot and process.incarnation != incarnation:
                usable = process.has_lease and process.subtasks
                assert not usable, f"{process.incarnation} may still act beside {incarnation}"

    def assert_exact(self) -> None:
        """A step is complete: nothing is lost or duplicated."""
        current = [self.by_incarnation[each].subtasks for each in self.pool.ready().values()]
        assert all(each is not None and each.attempt == self.region.attempt for each in current)
        read = Counter((s.slot, k) for s in current for k in range(s.position))
        summed, sunk = self.everywhere(current, SUM), self.everywhere(current, SINK)
        assert summed + sum((s.on_the_way_to(SUM) for s in current), Counter()) == read
        assert sunk + sum((s.on_the_way_to(SINK) for s in current), Counter()) == summed

    @staticmethod
    def everywhere(subtasks, level: int) -> Counter:
        return sum((each.taken[level] for each in subtasks), Counter())

    def assert_consistent(self, completed: Checkpoint) -> None:
        """The state is the effect of exactly the records before the barrier in every source."""
        snapshots = states_of(completed)
        slots = range(self.slots)
        read = Counter((s, k) for s in slots for k in range(snapshots[SubtaskId(SOURCE, s)]))
        for level in (SUM, SINK):
            assert sum((snapshots[SubtaskId(level, s)] for s in slots), Counter()) == read
