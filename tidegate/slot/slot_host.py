"""A slot without threads and sockets: how it handles messages and units.

One thread delivers control messages, any number of threads deliver units, and operator code runs
only on the mailbox of its pipeline. The slot machine decides what may be done.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar, assert_never

from tidegate.core.clock import Clock
from tidegate.core.errors import InternalError, TidegateError, UserError
from tidegate.core.ids import Attempt, CheckpointId, EdgeId, PipelineId, SlotIndex, SubtaskIndex
from tidegate.core.permit import Permit
from tidegate.core.workers import Alarm, Threads, Workers
from tidegate.exchange.codec import encode
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import (
    Accepted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointNotified,
    Collected,
    ConsoleLines,
    Deploy,
    Deployed,
    DeployFailed,
    DriverHeartbeat,
    DriverMessage,
    DumpThreads,
    Inspect,
    Inspected,
    Inspection,
    Refused,
    SampleEdge,
    Shutdown,
    SlotHeartbeat,
    SlotMessage,
    SlotReport,
    StepRequest,
    TakeProfile,
    Undeploy,
    Undeployed,
    Wake,
)
from tidegate.protocol.pacing import LONGEST_SLEEP, look_seconds
from tidegate.protocol.packet import FailureMark, Packet
from tidegate.protocol.slot_machine import SlotMachine
from tidegate.protocol.units import Pending, RunNow, Sealed, Stale, UnitKey
from tidegate.slot.inspection import EdgeTap, profile, thread_dump
from tidegate.slot.pipeline_host import HostServices, PipelineHost, UnitAnswer
from tidegate.stream.batch import Batch
from tidegate.transport.shipping import JobPackage, unpack

_CONSOLE_LINES_AT_ONCE = 1000
_LAST_ACTION_SECONDS = 1.0
"""How long a slot without permission to act waits for its current work."""
Answer = Callable[[UnitAnswer | Stale], None]
T = TypeVar("T")


class SlotHost:
    """Everything of one job in one slot process, as far as the slot machine allows it.

    `now` reads the clock of the lease, never that of user code.
    """

    def __init__(
        self,
        incarnation: Incarnation,
        send: Callable[[SlotMessage], None],
        clock: Clock,
        work_directory: Path,
        *,
        now: Callable[[], float] = time.monotonic,
        closing_seconds: float = 180.0,
        on_stuck: Callable[[], None] | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.slot = incarnation.slot
        self.send = send
        self.clock = clock
        self.work_directory = work_directory
        self.workers = workers or Threads()
        self.permit = Permit(self._has_lease)
        self.is_over = threading.Event()
        """Set when the process must end."""
        self._machine: SlotMachine[UnitAnswer] = SlotMachine(incarnation, now())
        self._lock = threading.Lock()
        """Held for every call of the machine."""
        self._now = now
        self._closing_seconds = closing_seconds
        self._on_stuck = on_stuck or self.is_over.set
        self._shipped: bytes | None = None
        self._package: JobPackage | None = None
        self._pipelines: dict[PipelineId, _Hosted] = {}
        self._waiting: dict[PipelineId, list[tuple[UnitKey, Answer]]] = {}

    def handle(self, message: DriverMessage) -> None:
        """Handle a message from the driver; called only by the control thread."""
        match message:
            case Accepted(package, lease):
                self._shipped = package
                self.ask(lambda machine, now: machine.accepted(lease))
            case DriverHeartbeat(answers):
                self.ask(lambda machine, now: machine.answered(answers, now))
            case Deploy():
                self._deploy(message)
            case CheckpointCompleted(pipeline, attempt, checkpoint_id):
                self._post(pipeline, lambda hosted: hosted.complete(attempt, checkpoint_id))
            case CheckpointAborted(pipeline, attempt, checkpoint_id):
                self._post(pipeline, lambda hosted: hosted.abort(attempt, checkpoint_id))
            case Undeploy(pipeline):
                self._undeploy(pipeline)
            case Inspect(number, what):
                self._inspect(number, what)
            case Shutdown():
                self.is_over.set()
            case Refused(reason):
                self.leave(reason)
            case _:
                assert_never(message)

    def _inspect(self, number: int, what: Inspection) -> None:
        match what:
            case DumpThreads():
                self.send(Inspected(number, thread_dump()))
            case TakeProfile(seconds):
                self.workers.later(0, lambda: self.send(Inspected(number, profile(seconds))))
            case SampleEdge(pipeline, edge, records, seconds):
                tap = EdgeTap(records, lambda found: self.send(Inspected(number, found)))
                self._post(pipeline, lambda hosted: hosted.tap(edge, tap))
                self.workers.later(
                    seconds, lambda: self._post(pipeline, lambda hosted: tap.finish())
                )
            case _:
                assert_never(what)

    def beat(self) -> None:
        """Request a renewal of the lease; a slot with an expired lease is over."""
        self._has_lease()
        if self._machine.is_exiting:
            self.is_over.set()
        else:
            number = self.ask(lambda machine, now: machine.beat(now))
            self.send(SlotHeartbeat(number, _memory()))

    def leave(self, reason: str) -> None:
        """Stop all work: another process may serve the slot."""
        self.ask(lambda machine, now: machine.exit(reason))
        self.is_over.set()

    def run_unit(
        self,
        pipeline: PipelineId,
        key: UnitKey,
        packets: Sequence[Packet],
        marks: Sequence[FailureMark],
        request: StepRequest | None,
        answer: Answer,
        on_packet: Callable[[Packet], None] | None = None,
    ) -> None:
        """Run a unit unless it already runs; `answer` is called once, with its answer.

        `on_packet` may get the first packets of the answer before. Both must return at once: the
        slot waits for them.
        """
        with self._lock:
            outcome = self._machine.deliver(pipeline, key, packets)
            self._waiting.setdefault(pipeline, []).append((key, answer))
            if isinstance(outcome, RunNow):
                ordered = outcome.packets
                self._post(
                    pipeline, lambda hosted: hosted.run(key, ordered, marks, request, on_packet)
                )
                return
            answers = self._answers(pipeline)
        _give(answers)

    def close(self, timeout: float) -> bool:
        """Close all operators; False if user code did not return in time."""
        for pipeline in list(self._pipelines):
            self._undeploy(pipeline)
        patience = timeout if self._has_lease() else min(timeout, _LAST_ACTION_SECONDS)
        stopped = [hosted.mailbox.stop(patience) for hosted in list(self._pipelines.values())]
        return all(stopped)

    def ask(
        self,
        question: Callable[[SlotMachine[UnitAnswer], float], T],
        pipeline: PipelineId | None = None,
    ) -> T:
        """Call the machine under its lock; on any thread.

        `pipeline` is the one whose units the question may seal or make stale.
        """
        now = self._now()
        with self._lock:
            outcome = question(self._machine, now)
            answers = self._answers(pipeline)
        _give(answers)
        return outcome

    def _has_lease(self) -> bool:
        return self.ask(lambda machine, now: machine.has_lease(now))

    def _post(self, pipeline: PipelineId, act: Callable[[_Hosted], None]) -> None:
        if (hosted := self._pipelines.get(pipeline)) is not None:
            hosted.mailbox.post(lambda: act(hosted))

    def _deploy(self, order: Deploy) -> None:
        pipeline = order.pipeline
        try:
            package = self._unpacked()
        except Exception as error:
            self.send(DeployFailed(pipeline, order.attempt, _unreadable(self.slot, error)))
            return
        if pipeline not in self._pipelines:
            self._pipelines[pipeline] = _Hosted(self, package, pipeline)
        with self._lock:
            if self._machine.deploy(pipeline, order.attempt):
                # If user code of an older attempt does not return, only another process can
                # continue.
                watch = self.workers.later(self._closing_seconds, self._on_stuck)
                self._pipelines[pipeline].deploy(order, watch)
            answers = self._answers(pipeline)
        _give(answers)

    def _undeploy(self, pipeline: PipelineId) -> None:
        self.ask(lambda machine, now: machine.undeploy(pipeline), pipeline)
        if pipeline in self._pipelines:
            self._post(pipeline, _Hosted.close)
        else:
            self.send(Undeployed(pipeline))

    def _answers(self, pipeline: PipelineId | None) -> list[tuple[Answer, UnitAnswer | Stale]]:
        """The answers to requests whose unit is sealed or stale; give them without the lock.

        Only the requests of one pipeline can have an answer, unless the slot may not act any more.
        """
        found: list[tuple[Answer, UnitAnswer | Stale]] = []
        pipelines = [] if pipeline is None else [pipeline]
        for each in list(self._waiting) if self._machine.is_exiting else pipelines:
            for key, answer in self._waiting.pop(each, ()):
                match self._machine.ask(each, key):
                    case Pending():
                        self._waiting.setdefault(each, []).append((key, answer))
                    case Sealed(_, sealed):
                        found.append((answer, sealed))
                    case Stale() as stale:
                        found.append((answer, stale))
        return found

    def _unpacked(self) -> JobPackage:
        if self._package is None:
            if self._shipped is None:
                raise InternalError("a pipeline was deployed before its job was sent")
            self._package, self._shipped = unpack(self._shipped, self.work_directory), None
        return self._package


class _Hosted:
    """A pipeline with its mailbox, which makes all calls except `deploy`, and its open parts."""

    def __init__(self, slot: SlotHost, package: JobPackage, pipeline: PipelineId) -> None:
        self._slot = slot
        self._package = package
        self._pipeline = pipeline
        self._send = slot.send
        self._console: list[str] = []
        self._services = HostServices(
            clock=slot.clock,
            console=self._print,
            deliver=self._deliver,
            directory=slot.work_directory,
            send=slot.send,
            spill_threshold=package.settings["tidegate.slot.spill-threshold"].get_bytes(),
            permit=slot.permit,
            workers=slot.workers,
            wake=self._wake,
            look_seconds=look_seconds(package.settings["tidegate.step.latency-target"]),
        )
        self._is_asleep = False
        """Whether somebody must wake the mailbox if work comes before its next look."""
        self._host: PipelineHost | None = None
        self._idle_failure: Exception | None = None
        """What went wrong between units; fails the next unit."""
        self._watch: Alarm | None = None
        """Runs until the mailbox has processed the last attempt."""
        self.mailbox = slot.workers.start(
            f"tidegate-pipeline-{pipeline}", self._look_around, self._next_look
        )

    def deploy(self, order: Deploy, watch: Alarm) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = watch
        self.mailbox.post(lambda: self._open(order, watch))

    def run(
        self,
        key: UnitKey,
        packets: Sequence[Packet],
        marks: Sequence[FailureMark],
        request: StepRequest | None,
        on_packet: Callable[[Packet], None] | None,
    ) -> None:
        if not self._slot.ask(lambda machine, now: machine.may_run(self._pipeline, key, now)):
            return
        assert self._host is not None
        self._is_asleep = False
        try:
            if self._idle_failure is not None:
                raise self._idle_failure
            answer = self._host.run(key.step, key.level, packets, marks, request, on_packet)
        except Exception as error:
            answer = self._as_answer(error)
        self._flush_console()
        self._slot.ask(
            lambda machine, now: machine.seal(self._pipeline, key, answer), self._pipeline
        )

    def _as_answer(self, error: Exception) -> UnitAnswer:
        """Answer those that wait for an abandoned unit with a mark that fails the region."""
        slot = self._slot.slot
        if not isinstance(error, TidegateError):
            error = InternalError(f"slot {slot}: {type(error).__name__}: {error}")
        mark = FailureMark(slot, error)
        return UnitAnswer((), (mark,), SlotReport(slot=slot, marks=(mark,)))

    def complete(self, attempt: Attempt, checkpoint_id: CheckpointId) -> None:
        if self._may_act(attempt):
            assert self._host is not None
            failure = self._host.complete_checkpoint(checkpoint_id)
            self._flush_console()
            self._send(CheckpointNotified(self._pipeline, attempt, checkpoint_id, failure))

    def abort(self, attempt: Attempt, checkpoint_id: CheckpointId) -> None:
        if self._may_act(attempt):
            assert self._host is not None
            self._host.abort_checkpoint(checkpoint_id)

    def tap(self, edge: EdgeId, tap: EdgeTap) -> None:
        if self._host is None:
            tap.finish()
        else:
            self._host.tap(edge, tap)

    def _open(self, order: Deploy, watch: Alarm) -> None:
        watch.cancel()
        attempt = order.attempt
        if not self._slot.ask(lambda machine, now: machine.open(self._pipeline, attempt, now)):
            return
        self._close_host()
        try:
            host = PipelineHost(
                self._package,
                self._pipeline,
                attempt,
                self._slot.slot,
                self._services,
                order.snapshots,
                order.restore,
                order.poison,
            )
            host.open()
        except Exception as error:
            slot = self._slot.slot
            failure = error if isinstance(error, TidegateError) else _unreadable(slot, error)
            self._has_closed()
            self._flush_console()
            self._send(DeployFailed(self._pipeline, attempt, failure))
            return
        self._host = host
        self._flush_console()
        self._send(Deployed(self._pipeline, attempt, host.seeks))

    def _close_host(self) -> TidegateError | None:
        host, self._host = self._host, None
        self._idle_failure = None
        return None if host is None else host.close()

    def close(self) -> None:
        failure = self._close_host()
        self._has_closed()
        self._flush_console()
        self._send(Undeployed(self._pipeline, failure))

    def _next_look(self) -> float:
        """In how many seconds to look for work after an action."""
        return LONGEST_SLEEP if self._host is None else self._host.caller.first_look()

    def _look_around(self) -> float:
        """Look for work; returns when to look again."""
        host = self._host
        if host is None or self._idle_failure is not None or not self._may_act(host.attempt):
            return LONGEST_SLEEP  # what changes this is posted to the mailbox
        try:
            return self._look_at(host)
        except Exception as error:
            self._idle_failure = error
            self._send(Wake(self._pipeline))
            return LONGEST_SLEEP

    def _look_at(self, host: PipelineHost) -> float:
        host.send_counts_when_due()
        self._is_asleep = True  # before it looks: what comes right after it has looked wakes it
        if host.caller.calls(host.is_available):
            self._send(Wake(self._pipeline))
        if host.caller.has_called:
            self._is_asleep = False
        return host.next_look()

    def _wake(self) -> None:
        """Look for work at once, unless a step or a look is near; called by any thread."""
        if self._is_asleep:
            self._is_asleep = False
            self.mailbox.post(self._look)

    def _look(self) -> None:
        self._look_around()

    def _may_act(self, attempt: Attempt) -> bool:
        return self._slot.ask(lambda machine, now: machine.may_act(self._pipeline, attempt, now))

    def _has_closed(self) -> None:
        self._slot.ask(lambda machine, now: machine.closed(self._pipeline), self._pipeline)

    def _print(self, line: str) -> None:
        self._console.append(line)
        if len(self._console) >= _CONSOLE_LINES_AT_ONCE:
            self._flush_console()

    def _flush_console(self) -> None:
        if self._console:
            lines, self._console = tuple(self._console), []
            self._send(ConsoleLines(lines))

    def _deliver(self, subtask: SubtaskIndex, collector: str, batch: Batch) -> None:
        self._send(Collected(collector, subtask, bytes(encode(batch))))


def _give(answers: Iterable[tuple[Answer, UnitAnswer | Stale]]) -> None:
    for give, answer in answers:
        give(answer)


def _memory() -> int | None:
    """The resident memory of this process in bytes, if the system provides it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * resource.getpagesize()


def _unreadable(slot: SlotIndex, error: Exception) -> UserError:
    return UserError(f"the job cannot be read in slot {slot}: {type(error).__name__}: {error}")
