"""Bugs of checkpoints in the driver."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests.sim.bugs.planting import bug, instead, section
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.errors import StorageError
from tidegate.core.ids import CheckpointId
from tidegate.driver.checkpoints.lifecycle import JobCheckpoints
from tidegate.driver.checkpoints.store_thread import PublicationSettled, StoreThread
from tidegate.protocol.alignment import Alignment
from tidegate.protocol.checkpoints.coordinator import CheckpointCoordinator
from tidegate.protocol.checkpoints.instructions import Publish
from tidegate.protocol.checkpoints.pending import PendingCheckpoint
from tidegate.protocol.checkpoints.retained import RetainedCheckpoints
from tidegate.protocol.input_gate import REQUESTS, InputGate
from tidegate.protocol.pacing import NextStep, StepCaller
from tidegate.state.snapshot.writer import SnapshotWriter
from tidegate.stream.elements import BarrierKind

section(
    "storage fails",
    "storage is slow",
    "kill a slot",
    "kill the driver",
    "savepoint",
    "drain",
    "put a slot to sleep",
)


def _all_but_one(original: Any) -> Any:
    def missing(self: Any) -> Any:
        found = original(self)
        return frozenset() if len(found) == 1 and self._acknowledged else found

    return missing


bug(
    "a checkpoint is complete when one subtask is missing",
    (PendingCheckpoint, "missing", _all_but_one),
)


def _commits_before_metadata(original: Any) -> Any:
    def carry_out(self: Any, order: Any) -> Any:
        if isinstance(order, Publish) and order.barrier.savepoint is None:
            self._post(PublicationSettled(order.checkpoint))
            self._worker.post(lambda: self._store.publish(order.checkpoint.metadata) and None)
            return None
        return original(self, order)

    return carry_out


bug(
    "subtasks commit before there is metadata",
    (StoreThread, "_carry_out", _commits_before_metadata),
)
bug(
    "a publication of unknown result is taken for done",
    (CheckpointStore, "is_published", instead(True)),
)
bug(
    "a job goes back to the checkpoint before the last",
    (
        RetainedCheckpoints,
        "restore_point",
        lambda o: lambda self: self._kept[-2] if len(self._kept) > 1 else o(self),
    ),
)
bug(
    "a discarded checkpoint takes shared files with it",
    (
        CheckpointStore,
        "discard",
        lambda o: lambda self, number: self._store.delete("shared") or o(self, number),
    ),
    (
        CheckpointStore,
        "abandon",
        lambda o: lambda self, number, *a, **k: o(self, CheckpointId(max(1, number - 1)), *a, **k),
    ),
)
bug(
    "a discarded checkpoint loses its files before its metadata",
    (
        CheckpointStore,
        "discard",
        lambda o: lambda self, number: (self._delete([f"chk-{number + 1}"]), o(self, number))[-1],
    ),
)
bug(
    "nothing is discarded",
    (RetainedCheckpoints, "trim", instead(())),
    (CheckpointStore, "discard", instead(None)),
)


def _only_what_has_arrived(original: Any) -> Any:
    return lambda self, number: original(self, number) if number in self._arriving else []


def _not_by_sources(original: Any) -> Any:
    def abort(self: Any, number: Any, now: float) -> Any:
        return [] if REQUESTS in self._inputs else original(self, number, now)

    return abort


def _only_for_input(original: Any) -> Any:
    def calls(self: Any, is_available: Any) -> Any:
        waiting, self._aborted = self._aborted, []
        has_called = original(self, is_available)
        self._aborted = waiting
        return has_called

    return calls


def _counts_for_newest(original: Any) -> Any:
    def acknowledged(self: Any, ack: Any, wall: float) -> Any:
        newest = max(self._pending, default=ack.checkpoint_id)
        return original(self, replace(ack, checkpoint_id=newest), wall)

    return acknowledged


bug(
    "an acknowledgement counts for the newest checkpoint",
    (CheckpointCoordinator, "acknowledged", _counts_for_newest),
    concurrent=3,
    unaligned=False,
    interval=300,
)

section(
    "kill a slot",
    "user code fails",
    "storage fails",
    "storage is slow",
    "savepoint",
    moments=(
        "metadata is created",
        "slot between acknowledge and complete",
        "driver between acknowledge and complete",
        "driver during the snapshot",
        "a barrier starts",
        "state is written",
    ),
    delay=1,
)


def _swallows(original: Any) -> Any:
    def close(self: Any) -> None:
        with suppress(StorageError):
            original(self)

    return close


def _looked_up(original: Any) -> Any:
    """A look at the storage alone does not show that its driver has given it up."""

    def is_published(self: Any, checkpoint_id: Any) -> bool:
        self._ruled_out.clear()
        return bool(original(self, checkpoint_id))

    return is_published


bug(
    "a publication of unknown result is taken for failed",
    (CheckpointStore, "is_published", instead(False)),
    (CheckpointStore, "rule_out", instead(None)),
)
bug(
    "a checkpoint goes on when a region has failed",
    (CheckpointCoordinator, "region_failed", instead([])),
)

section("storage fails", "kill a slot", moments=("state is written",), inline="0 b", faults=4)
bug(
    "a file that was written in part is acknowledged",
    (SnapshotWriter, "close", _swallows),
)

section("storage fails", moments=("metadata is created",), interval=300, faults=4)
bug(
    "a checkpoint that was not published counts when it appears",
    (CheckpointStore, "rule_out", instead(None)),
)
bug(
    "a checkpoint that appears after it was ruled out is published",
    (CheckpointStore, "is_published", _looked_up),
)

section("kill a slot", "user code fails", moments=("state is written", "a barrier starts"))
bug(
    "files of a late acknowledgement stay",
    (CheckpointStore, "abandon", instead(None)),
    inline="0 b",
)
section(
    "the bank fails",
    "kill a slot",
    "checkpoint",
    moments=(
        "a completion arrives",
        "a transaction is committed",
        "slot between pre-commit and commit",
    ),
)
bug(
    "a pipeline finishes before its slots know of its last checkpoint",
    (
        CheckpointCoordinator,
        "_note_end",
        lambda o: (
            lambda self, region, saved_by, unaware, deadline: o(
                self, region, saved_by, frozenset(), deadline
            )
        ),
    ),
)

section("savepoint", "kill a slot", "user code fails", "kill the driver", interval=600_000)
bug(
    "a job goes back to a savepoint",
    (
        RetainedCheckpoints,
        "add",
        lambda o: (
            lambda self, checkpoint, **more: (
                self._kept.append(checkpoint)
                if checkpoint.metadata.kind is BarrierKind.SAVEPOINT
                else None,
                o(self, checkpoint, **more),
            )[-1]
        ),
    ),
    (
        CheckpointCoordinator,
        "request",
        lambda o: lambda self, r: o(self, replace(r, awaits_next=False)),
    ),
    retained=1,
)
bug(
    "a savepoint is published before what it holds is committed",
    (
        CheckpointCoordinator,
        "request",
        lambda o: lambda self, r: o(self, replace(r, awaits_next=False)),
    ),
)

section("checkpoint", moments=("an input ends",))
bug(
    "a pipeline finishes with a checkpoint that is not its last",
    (
        CheckpointCoordinator,
        "_has_saved",
        lambda o: (
            lambda self, region, checkpoint, barrier: (
                setattr(self, "_kept_id", self._next_id),
                setattr(self, "_next_id", checkpoint.checkpoint_id + 1),
                o(self, region, checkpoint, barrier),
                setattr(self, "_next_id", self._kept_id),
            )[2]
        ),
    ),
    concurrent=3,
    unaligned=False,
    interval=300,
    sink="committer",
    width=1,
)

section(
    "storage is slow",
    "user code fails",
    "kill a slot",
    moments=("metadata is created",),
    delay=1,
)
bug(
    "a region is restored while a checkpoint is being published",
    (JobCheckpoints, "is_settled", instead(True)),
)

section(
    "stop",
    "drain",
    "storage fails",
    moments=("a step starts", "a barrier starts", "state is written"),
    interval=600_000,
)
bug(
    "an aborted checkpoint is not made known",
    (
        CheckpointCoordinator,
        "_aborted_by",
        lambda o: (
            lambda self, *a, **k: [
                each for each in o(self, *a, **k) if type(each).__name__ != "NotifyAborted"
            ]
        ),
    ),
)

section(
    "stop",
    "storage is slow",
    moments=("a step starts", "state is written"),
    timeout=1,
    interval=600_000,
)
bug(
    "the barrier of an aborted checkpoint is sent after all",
    (NextStep, "abort", instead(None)),
    (CheckpointCoordinator, "begun", lambda o: lambda self, number: o(self, number) or True),
    (Alignment, "abort", _only_what_has_arrived),
    pipelines=2,
    failover="region",
)
bug(
    "an abort that comes after its step waits for good",
    (StepCaller, "calls", _only_for_input),
    (NextStep, "abort", lambda o: lambda self, number: (o(self, number), self.call())[0]),
)

section(
    "drain",
    "storage fails @ a barrier starts",
    moments=(),
    interval=600_000,
    rate=2.0,
    faults=3,
)
bug(
    "an aborted drain does not go back",
    (
        CheckpointCoordinator,
        "_aborted_by",
        lambda o: (
            lambda self, *a, **k: [
                each for each in o(self, *a, **k) if type(each).__name__ != "GoBack"
            ]
        ),
    ),
)
bug(
    "a drain whose barrier was sent does not go back",
    (CheckpointCoordinator, "begun", lambda o: lambda self, number: number in self._pending),
)

section(
    "stop",
    "pause a slot @ a step starts",
    "storage is slow",
    moments=("a step starts",),
    interval=600_000,
    timeout=1,
    tolerable=10**6,
    faults=6,
)
bug(
    "the barrier of an aborted stop is sent to who is behind",
    (InputGate, "abort", _not_by_sources),
    (NextStep, "abort", instead(None)),
)
