"""Jobs on a mini cluster that a test has in its hands: what flows, what happens and what fails."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.programs import (
    PATIENCE,
    apply,
    collected,
    keyed,
    settings_of,
    wait_until,
)
from tests.taps import Tap
from tidegate.checkpoint.savepoints import new_savepoint
from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError
from tidegate.core.modes import SavepointFormat
from tidegate.driver.checkpoints.lifecycle import JobCheckpoints
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.driver.job_master import DriverOutputs, JobMaster
from tidegate.exchange.codec import decode
from tidegate.graph.job_graph import JobGraph
from tidegate.graph.logical import Transformation
from tidegate.operators.base import NeededFiles, OperatorSnapshot
from tidegate.operators.checkpointed import CheckpointedFunction, CheckpointListener
from tidegate.operators.functions import MapFunction
from tidegate.operators.keyed import KeyedMapOperator
from tidegate.protocol.job_status import JobStatus
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.stream.elements import Barrier, BarrierKind
from tidegate.testing.mini_cluster import MiniCluster
from tidegate.transport.shipping import pack
from tidegate.types.typeinfo import Types

RESTARTS = {
    "restart-strategy": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 2,
    "restart-strategy.fixed-delay.delay": "1 ms",
}
SMALL_STEPS = {"tidegate.step.max-records": 10}
CHECKPOINTS = {"execution.checkpointing.interval": "10 ms", **SMALL_STEPS}
TOLERANT = {"execution.checkpointing.tolerable-failed-checkpoints": 10**6}


class Job:
    """A job with its cluster, running."""

    def __init__(
        self,
        graph: JobGraph,
        settings: dict[str, Any] | None = None,
        cluster: MiniCluster | None = None,
    ) -> None:
        self.cluster = cluster or MiniCluster()
        self.console: list[str] = []
        self.payloads: list[Any] = []
        values = settings_of(settings)
        clock = SystemClock()
        checkpoints = JobCheckpoints.open(graph, values, clock)
        self.master = JobMaster(
            pack(
                checkpoints.job_id,
                checkpoints.graph,
                values.as_mapping(),
                to_other_processes=False,
            ),
            values,
            checkpoints,
            self.cluster,
            self.cluster,
            clock,
            DriverOutputs(console=self.console.append, collect=self.payloads.append),
        )
        self.master.start()

    def result(self) -> None:
        self.master.result.result(PATIENCE)

    def fails(self, error: type[TidegateError]) -> TidegateError:
        with pytest.raises(error) as failure:
            self.result()
        return failure.value

    def cancel(self) -> None:
        """End the job, and wait until it has."""
        self.master.cancel()
        self.master.join(PATIENCE)

    def records(self, sink: str | None = None) -> list[Any]:
        """What has come back to the driver, from all collecting sinks or from one."""
        return [
            record
            for message in list(self.payloads)
            if sink is None or message.collector == sink
            for batch in decode(message.payload, None)
            for record in batch.records
        ]

    @property
    def status(self) -> JobStatus:
        return self.master.status

    # --- checkpoints ------------------------------------------------------------------------

    def order(
        self,
        kind: BarrierKind,
        directory: Path | None = None,
        format: SavepointFormat = SavepointFormat.CANONICAL,
        **more: Any,
    ) -> Future[str]:
        """Request a checkpoint, or a savepoint in this directory; the answer is its path."""
        target = None
        if directory is not None:
            target = new_savepoint(str(directory), self.master.job_id, format)
        return self.master.order(SnapshotOrder.of(kind, target, **more))

    @property
    def history(self) -> Any:
        return self.master.checkpoints.history

    @property
    def latest(self) -> int:
        """The id of the latest completed checkpoint; 0 for none."""
        record = self.history.latest_completed
        return 0 if record is None else record.checkpoint_id

    @property
    def newest(self) -> int:
        """The id of the checkpoint that was triggered last; 0 for none."""
        return max((record.checkpoint_id for record in self.history.records()), default=0)

    def wait_for_checkpoint(self) -> CheckpointRecord:
        """A checkpoint that began after this call, once it is complete."""
        before = self.newest
        wait_until(lambda: self.latest > before)
        return self.history.latest_completed

    def wait_for_checkpoints(self, count: int) -> None:
        """So many more have completed."""
        wanted = self.history.counts.completed + count
        wait_until(lambda: self.history.counts.completed >= wanted)


# --- functions that the test watches ------------------------------------------------------------


@dataclass(slots=True)
class Event:
    """Something that happened to a function, in the order in which it did."""

    name: str
    what: str
    subtask: int
    value: Any = None


_watches: dict[str, Watch] = {}


class Watch:
    """What happened to the functions of one test, and what they should do about it."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.events: list[Event] = []
        self.actions: dict[tuple[str, str], Callable[[Any], Any]] = {}
        _watches[self.id] = self

    def on(self, name: str, what: str, action: Callable[[Any], Any]) -> None:
        """Do this whenever it happens; for `map` the result replaces the value."""
        self.actions[name, what] = action

    def values(self, name: str, what: str) -> list[Any]:
        return [e.value for e in list(self.events) if (e.name, e.what) == (name, what)]

    def count(self, name: str, what: str) -> int:
        return len(self.values(name, what))

    def last_snapshot(self, name: str) -> int:
        """The checkpoint that the function took part in last; 0 for none."""
        return max(self.values(name, "snapshot"), default=0)


class Watched(MapFunction, CheckpointedFunction, CheckpointListener):
    """Tells the test everything that happens to it; returns what it is given."""

    is_held = False

    def __init__(self, watch: Watch, name: str = "watched") -> None:
        self.watch = watch.id
        self.name = name
        self.subtask = -1

    def did(self, what: str, value: Any = None) -> Any:
        watch = _watches[self.watch]
        watch.events.append(Event(self.name, what, self.subtask, value))
        action = watch.actions.get((self.name, what))
        return value if action is None else action(value)

    def initialize_state(self, context: Any) -> None:
        self.did("initialize", context.is_restored())

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.did("open")

    def map(self, value: Any) -> Any:
        return self.did("map", value)

    def snapshot_state(self, context: Any) -> None:
        self.is_held = False
        try:
            self.did("snapshot", context.get_checkpoint_id())
        except NotNow:
            self.is_held = True

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.did("complete", checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.did("aborted", checkpoint_id)

    def close(self) -> None:
        self.did("close")


class NotNow(Exception):
    """Raised for a checkpoint that a `WatchedMap` must decline."""


class WatchedMap(KeyedMapOperator):
    """Applies a `Watched` function; where that says NotNow its state cannot be written."""

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        taken = super().snapshot(barrier)
        if not self.function.is_held:
            return taken
        return replace(taken, files=NeededFiles(_Unreadable(), lambda: None))


class _Unreadable(dict[str, str]):
    def items(self) -> NoReturn:
        raise NotNow


def hold_checkpoints(job: Job, watch: Watch, name: str) -> int:
    """Let no checkpoint complete any more, as a subtask declines them; returns the latest.

    The job has to tolerate failed checkpoints, and to take one at a time.
    """
    watch.on(name, "snapshot", lambda _: raise_(NotNow()))
    before = job.newest

    def has_refused() -> bool:
        failed = job.history.latest_failed
        return failed is not None and failed.checkpoint_id > before

    wait_until(has_refused)
    return job.latest


def take_checkpoint(job: Job, watch: Watch, name: str) -> int:
    """Let one checkpoint complete, and none behind it; returns its id."""
    before = job.newest
    chosen: list[int] = []

    def one(number: int) -> None:
        if number > before and not chosen:
            chosen.append(number)
        if number not in chosen:
            raise NotNow

    watch.on(name, "snapshot", one)
    wait_until(lambda: chosen and job.latest >= chosen[0])
    return chosen[0]


def checkpoint_after(job: Job, watch: Watch, tap: Tap, records: int, name: str = "sums") -> int:
    """Let so many records pass, then take a checkpoint that holds them; and none behind it."""
    tap.let_pass(records)
    return take_checkpoint(job, watch, name)


def open_with_barrier(checkpoints: JobCheckpoints, gate: threading.Event) -> None:
    """Let records pass a gate when a checkpoint begins: the step that follows has its barrier."""
    handle = checkpoints.handle

    def handle_then_open(event: Any) -> Any:
        effects = handle(event)
        gate.set()
        return effects

    checkpoints.handle = handle_then_open  # type: ignore[method-assign]


def raise_(error: BaseException) -> NoReturn:
    raise error


def fail_once(watch: Watch, name: str, what: str = "map", error: Exception | None = None) -> None:
    """Let a function fail the next time, and never again."""
    failures = iter([error or ValueError("once")])

    def action(value: Any) -> Any:
        for failure in failures:
            raise failure
        return value

    watch.on(name, what, action)


SUM = ValueStateDescriptor("sum", Types.LONG())


class Sums(Watched):
    """For every key the sum of its numbers so far; records are (key, number)."""

    descriptor = SUM

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(self.descriptor)
        super().open(runtime_context)

    def map(self, value: tuple[Any, int]) -> tuple[Any, int]:
        key, number = self.did("map", value)
        total = (self.sum.value() or 0) + number
        self.sum.update(total)
        return key, total


def summed(
    watch: Watch,
    upstream: Transformation,
    name: str = "sums",
    function: type[Sums] = Sums,
    **settings: Any,
) -> Transformation:
    """The sums of a stream by its keys, and a sink for them."""
    operator = WatchedMap(function(watch, name), [select_key(key_of)])
    sums = apply(operator, keyed(key_of, upstream), name=name, uid=name, is_keyed=True, **settings)
    return collected(sums, name, uid=f"sink of {name}", **settings)


def key_of(record: tuple[Any, int]) -> Any:
    return record[0]


def pairs(count: int, keys: int = 5) -> list[tuple[str, int]]:
    """Numbers from 0, spread over some keys."""
    return [(f"key {number % keys}", number) for number in range(count)]


def totals(records: Sequence[tuple[Any, int]]) -> dict[Any, int]:
    """What the sums must come to."""
    sums: dict[Any, int] = {}
    for key, number in records:
        sums[key] = sums.get(key, 0) + number
    return sums


# --- what is on disk ----------------------------------------------------------------------------


def on_disk(directory: Path, **more: Any) -> dict[str, Any]:
    """Checkpoints in files, which hold also the smallest state; failures of them are tolerated."""
    return {
        **CHECKPOINTS,
        **TOLERANT,
        "execution.checkpointing.dir": str(directory),
        "execution.checkpointing.data-inline-threshold": "0 b",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        **more,
    }


def checkpoints_in(directory: Path) -> list[int]:
    """The completed checkpoints in the directory of one job."""
    return sorted(int(path.parent.name[4:]) for path in directory.glob("chk-*/_metadata"))


def state_files(directory: Path) -> list[Path]:
    """The files in which the state of a checkpoint, or of all of a job, is.

    The job may delete a directory meanwhile: os.walk passes over it, Path.rglob raises.
    """
    files = (Path(parent, name) for parent, _, names in os.walk(directory) for name in names)
    return sorted(path for path in files if _holds_state(path))


def _holds_state(path: Path) -> bool:
    return path.name != "_metadata" and path.parent.name.partition("-")[0] in ("chk", "shared")
