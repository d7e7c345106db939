"""Bugs of sinks and state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.sim.bugs.planting import bug, instead, section
from tests.sim.clockwork import Killed
from tidegate.connectors.files.part_files import PartDirectory, _OpenPart
from tidegate.driver.job_master import JobMaster
from tidegate.driver.split_enumerator import SplitAssigner
from tidegate.operators.endpoints.commits import Commits
from tidegate.operators.endpoints.two_phase_commit import TwoPhaseCommitOperator
from tidegate.operators.user_code import USER_FAILURES
from tidegate.protocol import assembly
from tidegate.protocol.checkpoints.retained import RetainedCheckpoints
from tidegate.protocol.messages import CheckpointAcknowledged
from tidegate.slot import restored_state
from tidegate.slot.restored_state import RestoredState
from tidegate.slot.snapshotter import Snapshotter
from tidegate.slot.subtask import Subtask
from tidegate.state import redistribution
from tidegate.state.redistribution import Part
from tidegate.state.timers import TimerQueue
from tidegate.stream.elements import BarrierKind

section("the bank fails", "kill a slot", "kill the driver", "rescale", "stop")


def _commits_at_barrier(original: Any) -> Any:
    def snapshot(self: Any, barrier: Any) -> Any:
        snapshot = original(self, barrier)
        self.notify_complete(barrier.checkpoint_id)
        return snapshot

    return snapshot


def _acknowledges_first(original: Any) -> Any:
    def write(self: Any, frozen: Any) -> None:
        if frozen.barrier.savepoint is None and frozen.barrier.checkpoint_id % 2:
            sent: list[Any] = []
            send, self._send = self._send, sent.append
            try:
                original(self, frozen)
            finally:
                self._send = send
            store = self._store
            for message in sent:
                if isinstance(message, CheckpointAcknowledged) and store is not None:
                    for file in message.snapshot.files:
                        path = f"chk-{message.checkpoint_id}/{file.name}"
                        if store.exists(path):
                            data = store.read(path)
                            store.delete(path)
                            self._worker.post(lambda p=path, d=data: store.put(p, d))
                send(message)
            return
        original(self, frozen)

    return write


bug("a sink commits at the barrier", (TwoPhaseCommitOperator, "snapshot", _commits_at_barrier))
bug("a subtask acknowledges before it has written", (Snapshotter, "_write", _acknowledges_first))
bug(
    "a sink forgets what it has prepared for an earlier checkpoint",
    (
        Commits,
        "prepared",
        lambda o: (
            lambda self, number, committables: (
                self._pending.clear(),
                o(self, number, committables),
            )[-1]
        ),
    ),
    (
        TwoPhaseCommitOperator,
        "snapshot",
        lambda o: lambda self, barrier: (self._prepared.clear(), o(self, barrier))[-1],
    ),
)
bug(
    "what a checkpoint holds is not committed after a restore",
    (Commits, "_commit", lambda o: lambda self, c: None if not self._pending else o(self, c)),
    (TwoPhaseCommitOperator, "_settle", instead(None)),
)


def _swallow(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Killed:
        raise
    except Exception:
        return None


_snapshot = SplitAssigner.snapshot


def _union_dealt_once(original: Any) -> Any:
    def share(owners: Any, old: int, subtask: int, parallelism: int, is_used: bool) -> Any:
        return original(owners, old, subtask, parallelism, False)

    return share


def _last_element_lost(original: Any) -> Any:
    def share(owners: Any, old: int, subtask: int, parallelism: int, is_used: bool) -> Any:
        for part in original(owners, old, subtask, parallelism, is_used):
            yield (
                part
                if old == parallelism
                else Part(part.state, part.owner, part.start, part.stop - 1)
            )

    return share


def _opened_if_ended(is_opened: Callable[[Any], bool]) -> Any:
    def change(original: Any) -> Any:
        def open_some(self: Any, restored: Any = None) -> None:
            if self.is_finished:
                chain = zip(self._operators, self._contexts, strict=True)
                opened = {context.operator_id for operator, context in chain if is_opened(operator)}
                restored = {id: found for id, found in restored.items() if id in opened}
            original(self, restored)

        return open_some

    return change


def _skips_what_it_cannot_take(original: Any) -> Any:
    def take(self: Any, order: Any) -> None:
        try:
            original(self, order)
        except USER_FAILURES as error:
            self._snapshotter.decline(self._id, order.barrier.checkpoint_id, error)

    return take


bug("a union list is dealt like others", (redistribution, "_share", _union_dealt_once))
bug("a rescaled list loses its last element", (redistribution, "_share", _last_element_lost))
bug(
    "timers are not restored",
    (TimerQueue, "add_all", instead(None)),
)
bug(
    "a timer stays when it has fired",
    (
        TimerQueue,
        "pop_due",
        lambda o: lambda self, now: _fired_again(self, o(self, now)),
    ),
)


def _fired_again(queue: Any, timer: Any) -> Any:
    if timer is not None and timer.timestamp % 5 == 0:
        again = getattr(queue, "_again", set())
        queue._again = again
        if timer.timestamp not in again:
            again.add(timer.timestamp)
            queue.add_all([timer])
    return timer


bug(
    "state is not restored when a job is rescaled",
    (
        RestoredState,
        "snapshots",
        lambda o: lambda self, vertex: {id: found[:1] for id, found in o(self, vertex).items()},
    ),
)
bug(
    "sources begin again after a restore",
    (
        restored_state,
        "OperatorSnapshot",
        lambda o: (
            lambda **named: o(**{**named, "source_splits": named.get("source_splits", [])[:0]})
        ),
    ),
)
bug(
    "enumerators forget what they have assigned",
    (SplitAssigner, "snapshot", instead({})),
)
bug(
    "enumerators are asked before they assign what the readers store",
    (
        SplitAssigner,
        "assign",
        lambda o: lambda self: (setattr(self, "_before", _snapshot(self)), o(self))[-1],
    ),
    (SplitAssigner, "snapshot", lambda o: lambda self: self._before),
    discovers=True,
)
bug(
    "a subtask that has ended owes nothing",
    (
        Subtask,
        "open",
        lambda o: lambda self, restored=None: o(self, {} if self.is_finished else restored),
    ),
)
bug(
    "a sink that had ended commits nothing after a restore",
    (Subtask, "open", _opened_if_ended(lambda operator: operator.delivery() is None)),
)
bug(
    "the state of what had ended is gone after the second restore",
    (Subtask, "open", _opened_if_ended(lambda operator: operator.delivery() is not None)),
)
bug(
    "finished marks are not stored",
    (
        Snapshotter,
        "write",
        lambda o: lambda self, frozen: o(self, replace(frozen, is_finished=False)),
    ),
)
bug(
    "every subtask of a finished pipeline is forgotten",
    (
        assembly,
        "_record",
        lambda o: lambda *a, **k: replace(o(*a, **k), finished=frozenset()),
    ),
)
bug(
    "a stop goes on reading behind its barrier",
    (Subtask, "_rests", lambda o: lambda self: self.is_finished),
    (
        Subtask,
        "_take_snapshot",
        lambda o: lambda self, order: (o(self, order), setattr(self, "_halted_by", None))[-1],
    ),
)
bug(
    "a job that has stopped is restored from before its savepoint",
    (
        RetainedCheckpoints,
        "add",
        lambda o: (
            lambda self, checkpoint, **more: (
                () if checkpoint.metadata.kind is BarrierKind.STOP else o(self, checkpoint, **more)
            )
        ),
    ),
)


bug(
    "a driver that goes on from a checkpoint gives up when a sink does not open",
    (JobMaster, "_has_run", lambda o: lambda self, region: region.has_run),
)

section(
    "kill the driver",
    moments=(
        "driver between pre-commit and commit",
        "driver in the middle of commit",
        "metadata is created",
        "a completion arrives",
    ),
    width=3,
)
bug(
    "committables are forgotten when a sink gets fewer subtasks",
    (
        Commits,
        "recover",
        lambda o: (
            lambda self: (
                self._state.update([p for p in self._state.get() if p.subtask < self._parallelism]),
                o(self),
            )[-1]
        ),
    ),
    (
        TwoPhaseCommitOperator,
        "_settle",
        lambda o: lambda self, found: o(self, replace(found, prepared=found.prepared[:1])),
    ),
)

section(
    "the bank fails",
    "user code fails",
    moments=("a transaction is prepared", "a transaction is committed"),
)
bug(
    "a commit that failed is not tried again",
    (
        Subtask,
        "complete",
        lambda o: lambda self, number: (o(self, number), setattr(self, "failure", None))[-1],
    ),
    interval=600_000,
)
bug(
    "a sink that fails to prepare goes on",
    (
        TwoPhaseCommitOperator,
        "snapshot",
        lambda o: lambda self, barrier: _swallow(lambda: o(self, barrier)),
    ),
    sink="function",
    holds=False,
)

bug(
    "a subtask goes on with what it could not prepare",
    (Subtask, "_take_snapshot", _skips_what_it_cannot_take),
)

section("storage is slow", "checkpoint", moments=("state is written",))
bug(
    "a sink commits everything that it has prepared",
    (Commits, "complete", lambda o: lambda self, number: o(self, number + 100)),
    (
        TwoPhaseCommitOperator,
        "notify_complete",
        lambda o: lambda self, number: o(self, number + 100),
    ),
    concurrent=3,
    unaligned=False,
    interval=300,
    inline="0 b",
)


def _named_at_once(original: Any) -> Any:
    def finish(self: Any) -> Any:
        file = original(self)
        root = self._path.removesuffix(file.hidden)
        self._file_system.move(self._path, f"{root}{file.final}")
        return file

    return finish


section("the bank fails", "kill a slot", "kill the driver", "user code fails", sink="files")
bug("a file gets its name before its checkpoint is complete", (_OpenPart, "finish", _named_at_once))
bug("files of lost attempts stay", (PartDirectory, "remove_leftovers", instead(None)))
