"""Steps over an endless Spark job: a step is a message to the slots, not a Spark job of its own.

    driver ── STEP ──▶ slot i ── level 0 ──▶ pump ──▶ Spark's streaming shuffle ──▶ pump ──▶ slot j
       ▲                                                                             level 1 │
       └───────────────────────────── REPORT, of the last level ─────────────────────────────┘

A job that breaks is restarted, and its step is retried under the same number: units that have run
give the same answer. A pipeline whose packets do not leave their slot needs no job.
"""

from __future__ import annotations

import logging
import pickle
import queue
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark import InheritableThread

from tidegate.core.errors import LineClosed, NotAuthorized
from tidegate.core.ids import Address, JobId, Level, PipelineId, SlotIndex
from tidegate.exchange.cancellation import cancel_group
from tidegate.exchange.contract import NoRoom, StepAnswer, StepBroken, StepCanceled
from tidegate.exchange.pipelined.admission import once_there_is_room
from tidegate.exchange.pipelined.requirements import is_pumped
from tidegate.exchange.shuffle import unit_order
from tidegate.exchange.unit_protocol import Frame
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.messages import Attendance, StepOutcome, StepRequest
from tidegate.protocol.packet import SlotOutOfReach
from tidegate.transport.spark_errors import reason_of
from tidegate.transport.wire import Connection, dial

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger("tidegate.spark")
_START_SECONDS: Final = 30.0
_END_SECONDS: Final = 3.0


class PipelinedExchange:
    """Runs steps over one endless job for each pipeline."""

    def __init__(self, context: SparkContext, job_id: JobId, secret: bytes) -> None:
        self._context = context
        self._secret = secret
        self._tag = f"tidegate-{job_id}"
        self._jobs: dict[PipelineId, _EndlessJob] = {}
        self._epochs = 0
        self._has_ended = False
        self._lock = threading.Lock()

    def run_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> None:
        """See `tidegate.exchange.contract.Exchange`; answers on a thread that reads a line."""
        addresses = _in_order(pipeline, slots)
        if len(addresses) < pipeline.slots:
            missing = [SlotIndex(i) for i in range(pipeline.slots) if SlotIndex(i) not in slots]
            answer([SlotOutOfReach(slot, "it is not registered") for slot in missing])
            return
        job = self._jobs.get(pipeline.id)
        if job is None or not job.carries(addresses):
            if job is not None:
                job.end()
            job = self._new_job(pipeline, addresses)
            unreachable = job.start(self._secret)
            if unreachable:
                answer(unreachable)
                return
        job.run(unit_order(request, Level(0)), answer)

    def try_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> bool:
        job = self._jobs.get(pipeline.id)
        if job is None or not job.carries(_in_order(pipeline, slots)):
            return False
        order = unit_order(request, Level(0))
        if not job.has_room_for(order):
            return False
        job.run(order, answer)
        return True

    def cancel_step(self, pipeline: Pipeline) -> None:
        job = self._jobs.get(pipeline.id)
        if job is not None:
            job.give_up(StepCanceled("the step was canceled"))

    def end_steps(self) -> None:
        with self._lock:
            self._has_ended = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.end()

    def _new_job(self, pipeline: Pipeline, addresses: tuple[Address, ...]) -> _EndlessJob:
        with self._lock:
            if self._has_ended:  # nobody would end it
                raise StepCanceled("no steps follow")
            self._epochs += 1
            attendance = Attendance(pipeline.id, self._epochs, pipeline.slots, pipeline.levels)
            job = _EndlessJob(self._context, self._tag, attendance, addresses, is_pumped(pipeline))
            self._jobs[pipeline.id] = job
        return job


@dataclass(frozen=True, slots=True)
class _Awaited:
    """What the slots of a job should send, each once."""

    frame: Frame
    answer: StepAnswer
    payloads: dict[int, bytearray] = field(default_factory=dict)


class _EndlessJob:
    """One endless job, and the driver's lines to the slots that it connects."""

    def __init__(
        self,
        context: SparkContext,
        tag: str,
        attendance: Attendance,
        addresses: tuple[Address, ...],
        is_pumped: bool,
    ) -> None:
        self._context = context
        self._tag = tag
        name = f"{tag}-pumps-{attendance.pipeline}-{attendance.epoch}"
        # After a rescaling, epochs begin again, and threads of the exchange before may be late.
        self._group = f"{name}-{secrets.token_hex(8)}"
        self._attendance = attendance
        self._addresses = addresses
        self._lines: list[Connection] = []
        self._awaited: _Awaited | None = None
        self._is_at_rest = False
        self._broken: StepBroken | None = None
        self._lock = threading.Lock()
        self._thread: InheritableThread | None = None
        self._canceling: threading.Thread | None = None
        self._is_pumped = is_pumped

    def carries(self, addresses: tuple[Address, ...]) -> bool:
        """Whether it can run another step between these slots."""
        return self._is_at_rest and self._broken is None and self._addresses == addresses

    def start(self, secret: bytes) -> list[StepOutcome]:
        """Connect to the slots; returns those that cannot be reached."""
        unreachable: list[StepOutcome] = []
        for slot, address in enumerate(self._addresses):
            try:
                line = dial(address, secret)
                line.send(Frame.ATTEND, pickle.dumps(self._attendance))
                self._lines.append(line)
            except (LineClosed, NotAuthorized) as failure:
                unreachable.append(SlotOutOfReach(SlotIndex(slot), str(failure)))
        if unreachable:
            self.give_up(StepBroken("a slot cannot be reached"))
        with self._lock:
            broken = self._broken
        if broken is not None:  # also if it was canceled while connecting
            for line in self._lines:
                line.close()
            if unreachable:
                return unreachable
            raise broken
        answers: queue.SimpleQueue[Sequence[StepOutcome] | StepBroken] = queue.SimpleQueue()
        self._await(Frame.READY, answers.put)
        for slot, line in enumerate(self._lines):
            threading.Thread(target=self._receive, args=(slot, line), daemon=True).start()
        late = NoRoom(f"its pumps were not running within {_START_SECONDS:.0f} s")
        limit = threading.Timer(_START_SECONDS, self.give_up, (late,))
        limit.daemon = True
        limit.start()
        try:
            unreachable = _outcomes(answers.get())
            if self._is_pumped and not unreachable:
                self._await(Frame.READY, answers.put)
                self._start_pumps(secret)
                unreachable = _outcomes(answers.get())
        finally:
            limit.cancel()
        return unreachable

    def _start_pumps(self, secret: bytes) -> None:
        thread = InheritableThread(
            target=self._run_pumps, args=(secret,), name=self._group, daemon=True
        )
        with self._lock:
            if self._broken is not None:
                return
        thread.start()  # asks Spark: without the lock, so that nobody waits for it to give up
        with self._lock:
            self._thread, broken = thread, self._broken
        if broken is not None:  # by somebody who did not see the thread
            self._canceling = cancel_group(self._context, self._group)

    def run(self, order: bytes, answer: StepAnswer) -> None:
        """Run a step; a job that did not complete it runs no other."""
        self._is_at_rest = False
        self._await(Frame.REPORT, answer)
        try:
            for line in self._lines:
                line.send(Frame.STEP, order)
        except LineClosed as failure:
            self.give_up(StepBroken(f"a slot cannot be sent a step: {failure}"))

    def has_room_for(self, order: bytes) -> bool:
        """Whether `run` need not wait for a slot."""
        return all(line.has_room_for(len(order)) for line in self._lines)

    def give_up(self, reason: StepBroken) -> None:
        """Release everything that waits for a slot."""
        with self._lock:
            if self._broken is not None:
                return
            self._broken = reason
        for line in self._lines:
            line.hang_up()
        if self._thread is not None:
            self._canceling = cancel_group(self._context, self._group)

    def end(self) -> None:
        """Let the pumps finish; kill those that do not."""
        with self._lock:
            was_broken, self._broken = self._broken, self._broken or StepCanceled("it was ended")
        for line in self._lines:
            line.hang_up()
        if self._thread is not None and was_broken is None:
            self._thread.join(_END_SECONDS)
            if self._thread.is_alive():
                self._canceling = cancel_group(self._context, self._group)
        if self._canceling is not None:  # the next job needs the room of the pumps
            self._canceling.join(_END_SECONDS)

    def _await(self, frame: Frame, answer: StepAnswer) -> None:
        """Answer when every slot has sent such a frame, when one is gone, or when the job broke."""
        with self._lock:
            broken = self._broken
            if broken is None:
                self._awaited = _Awaited(frame, answer)
        if broken is not None:
            answer(broken)

    def _receive(self, slot: int, line: Connection) -> None:
        """Receive frames from a slot until its line ends, which ends the job."""
        try:
            while self._take(slot, *line.receive()):
                pass
        except LineClosed:
            pass
        except Exception:  # out of memory, for example: nobody else would answer
            _log.exception("slot %s cannot be received from", slot)
        self._left(slot, line.is_other_end_gone)
        line.close()

    def _left(self, slot: int, is_gone: bool) -> None:
        """A slot will send nothing more."""
        self.give_up(StepBroken(f"slot {slot} {'has gone' if is_gone else 'lost a pump'}"))
        with self._lock:
            awaited, self._awaited = self._awaited, None
        if awaited is not None:
            assert self._broken is not None
            gone = [SlotOutOfReach(SlotIndex(slot), "its line ended")]
            awaited.answer(gone if is_gone else self._broken)

    def _take(self, slot: int, kind: int, payload: bytearray) -> bool:
        """Whether the frame was expected; a slot reports a lost pump at any time."""
        with self._lock:
            awaited = self._awaited
            if awaited is None or awaited.frame != kind:
                return False
            awaited.payloads[slot] = payload
            if len(awaited.payloads) < len(self._lines):
                return True
            self._awaited = None
        answer = _decoded(awaited.payloads)
        # Slots that are ready for pumps are not ready for steps yet; and over the same job, a step
        # is not repeated: its cargo has been delivered.
        self._is_at_rest = kind == Frame.REPORT and not isinstance(answer, StepBroken)
        awaited.answer(answer)
        return True

    def _run_pumps(self, secret: bytes) -> None:
        reason = "its pumps ended"
        try:
            self._context.setJobGroup(self._group, "pumps", interruptOnCancel=True)
            self._context.addJobTag(self._tag)
            self._pump(secret)
        except Exception as failure:
            reason = reason_of(failure)
        self.give_up(StepBroken(reason))

    def _pump(self, secret: bytes) -> None:
        """Run the job to its end."""
        context, attendance = self._context, self._attendance
        gateway, jvm = context._gateway, context._jvm
        assert gateway is not None and jvm is not None
        slots = gateway.new_array(jvm.java.lang.String, attendance.slots)
        for slot, address in enumerate(self._addresses):
            slots[slot] = _dialed(address)

        def run() -> None:
            jvm.tidegate.exchange.Pumps.run(
                context._jsc.sc(),
                slots,
                attendance.levels,
                bytearray(secret),
                attendance.epoch,
                attendance.pipeline,
            )

        once_there_is_room(run, _START_SECONDS, lambda: self._broken is None)


def _in_order(pipeline: Pipeline, slots: Mapping[SlotIndex, Address]) -> tuple[Address, ...]:
    """The addresses of the slots of a pipeline that are registered."""
    return tuple(
        slots[SlotIndex(slot)] for slot in range(pipeline.slots) if SlotIndex(slot) in slots
    )


def _decoded(reports: Mapping[int, bytearray]) -> list[StepOutcome] | StepBroken:
    try:
        return [pickle.loads(report) for _, report in sorted(reports.items()) if report]
    except Exception as error:
        return StepBroken(f"a report cannot be read: {type(error).__name__}: {error}")


def _outcomes(answer: Sequence[StepOutcome] | StepBroken) -> list[StepOutcome]:
    if isinstance(answer, StepBroken):
        raise answer
    return list(answer)


def _dialed(address: Address) -> str:
    """How a pump connects to a slot: on a local master by Unix socket, otherwise by TCP."""
    return f"{address.host}:{address.port}" if address.host else f"unix:{address.unix_path}"
