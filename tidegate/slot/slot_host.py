"""A slot without its surroundings: what it does with messages and units, whoever brings them.

Control messages come by one thread, units by any number of them; operator code runs on the
mailbox of its pipeline alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from tidegate.core.clock import Clock
from tidegate.core.errors import InternalError, TidegateError, UserError
from tidegate.core.ids import Attempt, CheckpointId, PipelineId, SlotIndex, SubtaskIndex
from tidegate.exchange.codec import encode
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
    Refused,
    Shutdown,
    SlotMessage,
    SlotReport,
    StepRequest,
    Undeploy,
    Undeployed,
    Wake,
)
from tidegate.protocol.packet import FailureMark, Packet
from tidegate.protocol.units import (
    Pending,
    RunNow,
    Sealed,
    Stale,
    UnitKey,
    WorkUnits,
)
from tidegate.slot.mailbox import Mailbox
from tidegate.slot.pipeline_host import HostServices, PipelineHost, UnitAnswer
from tidegate.stream.batch import Batch
from tidegate.transport.shipping import JobPackage, unpack

_IDLE_SECONDS = 0.01
_CONSOLE_LINES_AT_ONCE = 1000


class SlotHost:
    """Everything of one job that lives in one slot process."""

    def __init__(
        self,
        slot: SlotIndex,
        send: Callable[[SlotMessage], None],
        clock: Clock,
        work_directory: Path,
        may_act: Callable[[], bool] = lambda: True,
        *,
        closing_seconds: float = 180.0,
        on_stuck: Callable[[], None] | None = None,
    ) -> None:
        self._may_act = may_act
        self._closing_seconds = closing_seconds
        self._on_stuck = on_stuck or self._leave
        self._slot = slot
        self._send = send
        self._clock = clock
        self._work_directory = work_directory
        self._shipped: bytes | None = None
        self._package: JobPackage | None = None
        self._pipelines: dict[PipelineId, _Hosted] = {}
        self._lock = threading.Lock()
        self.is_over = threading.Event()
        """Set when the driver sent the slot home."""

    def handle(self, message: DriverMessage) -> None:
        """Take a message of the driver; called by the control thread alone."""
        match message:
            case Accepted(package, _):
                self._shipped = package
            case Deploy():
                self._deploy(message)
            case CheckpointCompleted(pipeline, attempt, checkpoint_id):
                self._hosted(pipeline, lambda hosted: hosted.complete(attempt, checkpoint_id))
            case CheckpointAborted(pipeline, attempt, checkpoint_id):
                self._hosted(pipeline, lambda hosted: hosted.abort(attempt, checkpoint_id))
            case Undeploy(pipeline):
                self._undeploy(pipeline)
            case Shutdown() | Refused():
                self.is_over.set()
            case DriverHeartbeat():
                pass
            case _:
                assert_never(message)

    def run_unit(
        self,
        pipeline: PipelineId,
        key: UnitKey,
        packets: Sequence[Packet],
        marks: Sequence[FailureMark],
        request: StepRequest | None,
    ) -> UnitAnswer | Stale:
        """Run a unit, or wait for whoever does; returns its one and only answer."""
        if not self._may_act():
            return Stale(key, f"the lease of slot {self._slot} has run out")
        with self._lock:
            hosted = self._pipelines.get(pipeline)
        if hosted is None:
            return Stale(key, f"pipeline {pipeline} is not deployed in slot {self._slot}")
        return hosted.run_unit(key, packets, marks, request)

    def close(self, timeout: float) -> bool:
        """Close all operators; False if user code did not return in time."""
        with self._lock:
            pipelines = list(self._pipelines.values())
        for hosted in pipelines:
            hosted.undeploy()
        stopped = [hosted.mailbox.stop(timeout) for hosted in pipelines]
        return all(stopped)

    def abandon(self) -> None:
        """End the threads and close nothing, as if the process had been killed."""
        with self._lock:
            pipelines = list(self._pipelines.values())
        for hosted in pipelines:
            hosted.abandon()

    def _hosted(self, pipeline: PipelineId, act: Callable[[_Hosted], None]) -> None:
        if (hosted := self._pipelines.get(pipeline)) is not None:
            act(hosted)

    def _deploy(self, order: Deploy) -> None:
        pipeline = order.pipeline
        try:
            package = self._unpacked()
        except Exception as error:
            self._send(DeployFailed(pipeline, order.attempt, _unreadable(self._slot, error)))
            return
        with self._lock:
            if pipeline not in self._pipelines:
                self._pipelines[pipeline] = _Hosted(
                    package,
                    pipeline,
                    self._slot,
                    self._send,
                    self._clock,
                    self._work_directory,
                    self._may_act,
                )
        # If user code of an older attempt does not return only another process can go on.
        watch = threading.Timer(self._closing_seconds, self._on_stuck)
        watch.daemon = True
        self._pipelines[pipeline].deploy(order, watch)

    def _leave(self) -> None:
        self.is_over.set()

    def _undeploy(self, pipeline: PipelineId) -> None:
        hosted = self._pipelines.get(pipeline)
        if hosted is None:
            self._send(Undeployed(pipeline))
        else:
            hosted.undeploy()

    def _unpacked(self) -> JobPackage:
        if self._package is None:
            if self._shipped is None:
                raise InternalError("a pipeline was deployed before its job was sent")
            self._package, self._shipped = unpack(self._shipped, self._work_directory), None
        return self._package


class _Hosted:
    """A pipeline with its mailbox, its units and its present attempt."""

    def __init__(
        self,
        package: JobPackage,
        pipeline: PipelineId,
        slot: SlotIndex,
        send: Callable[[SlotMessage], None],
        clock: Clock,
        work_directory: Path,
        may_act: Callable[[], bool],
    ) -> None:
        self._may_act = may_act
        self._package = package
        self._pipeline = pipeline
        self._slot = slot
        self._send = send
        self._console: list[str] = []
        self._services = HostServices(
            clock=clock,
            console=self._print,
            deliver=self._deliver,
            directory=work_directory,
            send=send,
            spill_threshold=package.settings["tidegate.slot.spill-threshold"].get_bytes(),
        )
        self._host: PipelineHost | None = None
        self._units: WorkUnits[UnitAnswer] = WorkUnits(Attempt(0))
        self._changed = threading.Condition()
        self._awake = True
        self._watch: threading.Timer | None = None
        """Runs until the mailbox has got round to the last attempt."""
        self.mailbox = Mailbox(f"tidegate-pipeline-{pipeline}", self._look_around, _IDLE_SECONDS)

    def deploy(self, order: Deploy, watch: threading.Timer) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = watch
        watch.start()
        with self._changed:
            self._units.reset(order.attempt)
            self._changed.notify_all()
        self.mailbox.post(lambda: self._open(order, watch))

    def complete(self, attempt: Attempt, checkpoint_id: CheckpointId) -> None:
        self.mailbox.post(lambda: self._complete(attempt, checkpoint_id))

    def abort(self, attempt: Attempt, checkpoint_id: CheckpointId) -> None:
        self.mailbox.post(lambda: self._abort(attempt, checkpoint_id))

    def undeploy(self) -> None:
        with self._changed:
            self._units.close()
            self._changed.notify_all()
        self.mailbox.post(self._close_and_tell)

    def abandon(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self.mailbox.stop(0)
        if self._host is not None:
            self._host.abandon()

    def run_unit(
        self,
        key: UnitKey,
        packets: Sequence[Packet],
        marks: Sequence[FailureMark],
        request: StepRequest | None,
    ) -> UnitAnswer | Stale:
        with self._changed:
            outcome: RunNow | Pending | Sealed[UnitAnswer] | Stale
            outcome = self._units.complete(key, packets)
            if isinstance(outcome, RunNow):
                ordered = outcome.packets
                self.mailbox.post(lambda: self._run(key, ordered, marks, request))
                outcome = self._units.ask(key)
            while isinstance(outcome, Pending):
                self._changed.wait()
                outcome = self._units.ask(key)
        return outcome.answer if isinstance(outcome, Sealed) else outcome

    def _run(
        self,
        key: UnitKey,
        packets: Sequence[Packet],
        marks: Sequence[FailureMark],
        request: StepRequest | None,
    ) -> None:
        host = self._host
        try:
            if host is None or host.attempt != key.attempt:
                raise InternalError(f"attempt {key.attempt} is not open")
            answer = host.run(key.step, key.level, packets, marks, request)
        except Exception as error:
            answer = self._as_answer(error)
        self._flush_console()
        self._awake = False
        with self._changed:
            self._units.seal(key, answer)
            self._changed.notify_all()

    def _as_answer(self, error: Exception) -> UnitAnswer:
        """Whoever waits for a unit that came to nothing gets a mark that fails the region."""
        if not isinstance(error, TidegateError):
            error = InternalError(f"slot {self._slot}: {type(error).__name__}: {error}")
        mark = FailureMark(self._slot, error)
        return UnitAnswer((), (mark,), SlotReport(slot=self._slot, marks=(mark,)))

    def _complete(self, attempt: Attempt, checkpoint_id: CheckpointId) -> None:
        host = self._host
        if host is not None and host.attempt == attempt and self._may_act():
            failure = host.complete_checkpoint(checkpoint_id)
            self._flush_console()
            self._send(CheckpointNotified(self._pipeline, attempt, checkpoint_id, failure))

    def _abort(self, attempt: Attempt, checkpoint_id: CheckpointId) -> None:
        if self._host is not None and self._host.attempt == attempt:
            self._host.abort_checkpoint(checkpoint_id)

    def _open(self, order: Deploy, watch: threading.Timer) -> None:
        watch.cancel()
        attempt = order.attempt
        self._close()
        try:
            host = PipelineHost(
                self._package,
                self._pipeline,
                attempt,
                self._slot,
                self._services,
                order.snapshots,
                order.restore,
                order.poison,
            )
            host.open()
        except Exception as error:
            failure = error if isinstance(error, TidegateError) else _unreadable(self._slot, error)
            self._flush_console()
            self._send(DeployFailed(self._pipeline, attempt, failure))
            return
        self._host = host
        self._awake = True
        self._flush_console()
        self._send(Deployed(self._pipeline, attempt, host.seeks))

    def _close(self) -> TidegateError | None:
        host, self._host = self._host, None
        return None if host is None else host.close()

    def _close_and_tell(self) -> None:
        failure = self._close()
        self._flush_console()
        self._send(Undeployed(self._pipeline, failure))

    def _look_around(self) -> None:
        """While idle: tell the driver, once, that a step would find something to do."""
        if self._host is not None and not self._awake and self._host.is_available():
            self._awake = True
            self._send(Wake(self._pipeline))

    def _print(self, line: str) -> None:
        self._console.append(line)
        if len(self._console) >= _CONSOLE_LINES_AT_ONCE:
            self._flush_console()

    def _flush_console(self) -> None:
        if self._console:
            lines, self._console = tuple(self._console), []
            self._send(ConsoleLines(lines))

    def _deliver(self, collector: str, subtask: SubtaskIndex, batch: Batch) -> None:
        self._send(Collected(collector, subtask, bytes(encode(batch))))


def _unreadable(slot: SlotIndex, error: Exception) -> UserError:
    return UserError(f"the job cannot be read in slot {slot}: {type(error).__name__}: {error}")
