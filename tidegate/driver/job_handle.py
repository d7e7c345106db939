"""A running job, as the submitting program sees it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from tidegate.checkpoint.savepoints import new_savepoint
from tidegate.checkpoint.statistics import CheckpointHistory
from tidegate.connectors.driver_side import DriverSide
from tidegate.core.config import Settings
from tidegate.core.errors import (
    ConfigError,
    GraphError,
    InternalError,
    TidegateError,
    UserError,
)
from tidegate.core.ids import EdgeId, JobId, SlotIndex
from tidegate.core.modes import OnTerminate, SavepointFormat
from tidegate.driver.checkpoints.home import CheckpointHome
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.driver.chronicle import Chronicle
from tidegate.driver.collectors import Collectors
from tidegate.driver.inspections import InspectionOrder
from tidegate.driver.interrupts import plain_interrupts
from tidegate.driver.job_master import JobMaster
from tidegate.driver.live_line import Console
from tidegate.driver.progress import Progress, VertexProgress
from tidegate.driver.slots import SlotProcess
from tidegate.graph.job_graph import JobGraph
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.protocol.job_status import JobStatus
from tidegate.protocol.messages import Inspection, Traffic
from tidegate.stream.elements import BarrierKind, SavepointTarget
from tidegate.types.arrow import ArrowFormat

_log = logging.getLogger("tidegate.job")


StartMaster = Callable[[JobGraph, CheckpointHome | None], JobMaster]
"""Creates the master of a job, which continues from its predecessor if there is one."""
Replan = Callable[[int], JobGraph]
"""Plans the same program with another default parallelism."""


class JobHandle:
    """What `execute` waits for and `execute_async` returns."""

    def __init__(
        self,
        graph: JobGraph,
        start: StartMaster,
        collectors: Collectors,
        console: Console,
        replan: Replan | None = None,
    ) -> None:
        self.name = graph.name
        self._start = start
        self._replan = replan
        self._collectors = collectors
        self._result: Future[None] = Future()
        self._console = console
        self._attendance = _Attendance(graph, collectors)
        self._changing = threading.Lock()
        """Held while deciding which master receives a request."""
        self._is_canceled = False
        self._keeps_checkpoints = False
        try:
            self._attendance.prepare()
            self._master = start(graph, None)
        except BaseException:
            console.close()
            raise
        self._attendance.begin()
        console.follow(self.name, self.progress)
        self._run()

    def _run(self) -> None:
        self._master.result.add_done_callback(self._ended)
        self._master.start()

    def _ended(self, result: Future[None]) -> None:
        failure = result.exception()
        successor = self._master.checkpoints.successor
        if successor is not None and failure is None:
            try:
                self._hand_over(successor)
            except Exception as error:
                failure = _as_tidegate_error(error)
                self._master.not_handed_over(failure)
            else:
                return
        self._collectors.end()
        self._attendance.wait()
        self._console.close()
        if failure is None:
            self._result.set_result(None)
        else:
            self._result.set_exception(failure)

    def _hand_over(self, plan: JobGraph) -> None:
        """Continue the job under another plan, from where the current master stopped."""
        master = self._start(plan, self._master.checkpoints.home)
        master.succeed(self._master)
        with self._changing:
            self._master = master
            if self._is_canceled:
                master.cancel(keeps_checkpoints=self._keeps_checkpoints)
        self._run()

    @property
    def job_id(self) -> JobId:
        return self._master.job_id

    def status(self) -> JobStatus:
        return self._master.status

    @property
    def has_started(self) -> bool:
        """Whether its slots are deployed and all its pipelines have completed a step."""
        return self._master.has_started

    def progress(self) -> Progress:
        return self._master.progress()

    def accumulators(self) -> dict[str, Any]:
        return self._master.accumulators()

    def vertices(self) -> tuple[VertexProgress, ...]:
        return self._master.vertices()

    def traffic(self) -> dict[EdgeId, Traffic]:
        return self._master.traffic()

    def processes(self) -> dict[SlotIndex, SlotProcess]:
        return self._master.processes()

    def inspect(self, slot: SlotIndex, what: Inspection) -> Future[Any]:
        """Inspect a running slot; wait for the answer with a timeout."""
        order = InspectionOrder(slot, what)
        self._master.inspect(order)
        return order.answer

    @property
    def graph(self) -> JobGraph:
        return self._master.checkpoints.graph

    @property
    def settings(self) -> Settings:
        return self._master.settings

    @property
    def checkpoint_directory(self) -> str | None:
        """The path or URL of the job's directory; None: its checkpoints are not in files."""
        return self._master.checkpoints.home.directory

    @property
    def chronicle(self) -> Chronicle:
        return self._master.chronicle

    def when_ended(self, act: Callable[[], None]) -> None:
        """Call `act` once nothing of the job runs any more."""
        self._result.add_done_callback(lambda _: act())

    @property
    def checkpoints(self) -> CheckpointHistory:
        return self._master.checkpoints.history

    def result(self, timeout: float | None = None) -> None:
        """Wait for the end of the job.

        Raises:
            TidegateError: why the job failed, or JobCanceled.
            UserError: the job still runs after `timeout` seconds.
        """
        try:
            with plain_interrupts():
                self._result.result(timeout)
        except FutureTimeout:
            raise UserError(f"job {self.name!r} still runs after {timeout} s") from None

    def cancel(self, *, keeps_checkpoints: bool = False) -> None:
        """Request the cancellation of the job; wait for it with `result`.

        With `keeps_checkpoints`, the last checkpoint is kept whatever the settings say.
        """
        with self._changing:
            self._is_canceled = True
            self._keeps_checkpoints = keeps_checkpoints
            self._master.cancel(keeps_checkpoints=keeps_checkpoints)

    def terminate(self) -> None:
        """End the interrupted job as configured, and wait for its end.

        Another interrupt cancels a job that is being stopped.
        """
        if self.settings.engine.on_terminate is OnTerminate.STOP:
            try:
                with plain_interrupts():
                    path = self.stop().result()
                    self.result()
                _log.warning("the job has stopped; resume it with --from %s", path)
            except KeyboardInterrupt:
                _log.warning("interrupted again: the job is cancelled")
            except TidegateError as error:
                _log.warning("the job cannot be stopped, so it is cancelled: %s", error)
        self.cancel(keeps_checkpoints=True)
        with suppress(TidegateError):
            self.result()
        if self.status() is JobStatus.CANCELED and self.settings.checkpointing.is_enabled:
            _log.warning("%s", self._way_back())

    def _way_back(self) -> str:
        """How to resume the interrupted job."""
        latest = self.checkpoints.latest_completed
        if self.checkpoint_directory is None:
            return (
                "interrupted: the checkpoints were in the memory of the driver and are lost; set "
                "execution.checkpointing.dir to keep them"
            )
        if latest is None:
            given = self.settings.checkpointing.restore_path
            way = "the next run starts fresh" if given is None else f"resume with --from {given}"
            return f"interrupted before the first checkpoint of this run: {way}"
        return (
            f"interrupted: checkpoint {latest.checkpoint_id} is kept; resume with --from latest, "
            f"or with --from {latest.path}"
        )

    def take_checkpoint(self) -> Future[str]:
        """Request a checkpoint now, in addition to periodic ones; returns its path."""
        return self.order_checkpoint().answer

    def order_checkpoint(self) -> SnapshotOrder:
        """Like `take_checkpoint`, but returns the order, which reports the start, too."""
        return self._give(SnapshotOrder.of(BarrierKind.CHECKPOINT))

    def take_savepoint(
        self,
        directory: str | None = None,
        format: SavepointFormat = SavepointFormat.CANONICAL,
        *,
        cancel: bool = False,
    ) -> Future[str]:
        """Request a savepoint; returns its path. With `cancel`, the job is cancelled afterwards.

        Raises:
            ConfigError: no directory is set for it.
        """
        return self.order_savepoint(directory, format, cancel=cancel).answer

    def order_savepoint(
        self, directory: str | None, format: SavepointFormat, *, cancel: bool = False
    ) -> SnapshotOrder:
        """Like `take_savepoint`, but returns the order."""
        target = self._savepoint_in(directory, format)
        return self._give(SnapshotOrder.of(BarrierKind.SAVEPOINT, target, cancels=cancel))

    def stop(
        self,
        directory: str | None = None,
        format: SavepointFormat = SavepointFormat.CANONICAL,
        *,
        drain: bool = False,
    ) -> Future[str]:
        """Stop the job with a savepoint; returns its path.

        With `drain`, all inputs end first, and operators emit what they hold back.

        Raises:
            ConfigError: no directory is set for it.
        """
        return self.order_stop(directory, format, drain=drain).answer

    def order_stop(
        self, directory: str | None, format: SavepointFormat, *, drain: bool = False
    ) -> SnapshotOrder:
        """Like `stop`, but returns the order."""
        target = self._savepoint_in(directory, format)
        return self._give(SnapshotOrder.of(BarrierKind.STOP, target, drains=drain))

    def rescale(self, parallelism: int) -> Future[str]:
        """Stop with a checkpoint and resume from it at another parallelism; returns its path.

        Operators with a parallelism of their own keep it.

        Raises:
            GraphError: the job cannot have this parallelism.
        """
        return self.order_rescaling(parallelism).answer

    def order_rescaling(self, parallelism: int) -> SnapshotOrder:
        """Like `rescale`, but returns the order."""
        if self._replan is None:
            raise GraphError("this job cannot be rescaled: restart it from a savepoint")
        plan = checked_plan(self._master.checkpoints.graph, self._replan(parallelism))
        return self._give(SnapshotOrder.of(BarrierKind.STOP, successor=plan))

    def _give(self, order: SnapshotOrder) -> SnapshotOrder:
        self._master.order(order)
        return order

    def _savepoint_in(self, directory: str | None, format: SavepointFormat) -> SavepointTarget:
        chosen = directory or self._master.savepoint_directory
        if chosen is None:
            raise ConfigError(
                "execution.checkpointing.savepoint-dir",
                None,
                "set it to the directory for savepoints, or specify a directory for this one",
            )
        return new_savepoint(chosen, self.job_id, format)

    def collected(self, name: str, format: ArrowFormat | None) -> Iterator[Any]:
        """The records of a collecting sink as they arrive; a failure of the job is raised last."""
        yield from self._collectors.records(name, format)
        self.result()


def _as_tidegate_error(error: Exception) -> TidegateError:
    if isinstance(error, TidegateError):
        return error
    return InternalError(f"{type(error).__name__}: {error}")


class _Attendance:
    """Serves the sinks of a job that have work to do in the driver."""

    def __init__(self, graph: JobGraph, collectors: Collectors) -> None:
        operators = [chained.operator for vertex in graph.vertices for chained in vertex.chain]
        self._sides = [
            operator.sink
            for operator in operators
            if isinstance(operator, SinkOperator) and isinstance(operator.sink, DriverSide)
        ]
        self._collectors = collectors
        self._threads: list[threading.Thread] = []

    def prepare(self) -> None:
        """Prepare the sinks before the job is sent to the slots; their errors are raised."""
        for side in self._sides:
            side.before_start()

    def begin(self) -> None:
        for side in self._sides:
            thread = threading.Thread(
                target=self._attend, args=(side,), name="tidegate-sink", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def wait(self) -> None:
        """Wait until all sinks are done; the collectors must have ended."""
        for thread in self._threads:
            thread.join()

    def _attend(self, side: DriverSide) -> None:
        for record in self._collectors.records(side.collector, None):
            side.delivered(record)
        side.ended()


def checked_plan(present: JobGraph, wanted: JobGraph) -> JobGraph:
    """Check that the state of the present plan can be redistributed under the wanted one.

    Raises:
        GraphError: an operator would have more subtasks than its state has key groups.
    """
    groups = {
        chained.operator_id: vertex.max_parallelism
        for vertex in present.vertices
        for chained in vertex.chain
        if chained.is_keyed
    }
    for vertex in wanted.vertices:
        for chained in vertex.chain:
            limit = groups.get(chained.operator_id)
            if limit is not None and vertex.parallelism > limit:
                raise GraphError(
                    f"operator {chained.name!r} cannot have {vertex.parallelism} subtasks: the max "
                    f"parallelism of its state is {limit} and cannot change"
                )
    return wanted
