"""Bugs of barriers and gates."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.sim.bugs.planting import bug, instead, section
from tidegate.protocol.alignment import Alignment, Block
from tidegate.protocol.input_gate import InputGate
from tidegate.slot.outbox import ChannelWriter
from tidegate.slot.restored_state import RestoredState
from tidegate.slot.subtask import Subtask
from tidegate.stream.elements import Barrier

IN_FLIGHT = {"unaligned": True, "holds": True, "mode": "EXACTLY_ONCE", "interval": 700}

section(
    "checkpoint",
    "savepoint",
    "kill a slot",
    "user code fails",
    unaligned=False,
    interval=300,
    width=2,
)


def _never_blocks(original: Any) -> Any:
    def arrived(self: Any, channel: Any, barrier: Any, now: float) -> Any:
        rulings = original(self, channel, barrier, now)
        for arriving in self._arriving.values():
            arriving.blocked.clear()
        return [ruling for ruling in rulings if not isinstance(ruling, Block)]

    return arrived


def _first_barrier_counts(original: Any) -> Any:
    def arrived(self: Any, channel: Any, barrier: Any, now: float) -> Any:
        if barrier.checkpoint_id > self._completed and barrier.checkpoint_id not in self._arriving:
            arriving = original(self, channel, barrier, now)
            found = self._arriving.get(barrier.checkpoint_id)
            if found is not None and not barrier.is_unaligned:
                found.owed.clear()
                return self._complete(found)
            return arriving
        return original(self, channel, barrier, now)

    return arrived


def _drops_what_waits(original: Any) -> Any:
    def drain(self: Any, now: float) -> Any:
        for channel in self._released:
            while self._waiting[channel] and not isinstance(self._waiting[channel][0][0], Barrier):
                self._waiting[channel].popleft()
        return original(self, now)

    return drain


def _drains_backwards(original: Any) -> Any:
    def drain(self: Any, now: float) -> Any:
        for channel in self._released:
            self._waiting[channel] = deque(reversed(self._waiting[channel]))
        return original(self, now)

    return drain


def _loses_in_flight(original: Any) -> Any:
    return lambda self, checkpoint_id, elements: original(self, checkpoint_id, ())


def _silent_when_finished(original: Any) -> Any:
    def take(self: Any, order: Any) -> None:
        if not self.is_finished:
            original(self, order)
            return
        with patch.object(ChannelWriter, "broadcast", lambda writer, element: None):
            original(self, order)

    return take


bug("a channel with a barrier is not blocked", (Alignment, "_arrived", _never_blocks))
bug("the first barrier is taken for the last", (Alignment, "_arrived", _first_barrier_counts))
bug("what waited behind a barrier is dropped", (InputGate, "_drain", _drops_what_waits))
bug("what waited behind a barrier comes backwards", (InputGate, "_drain", _drains_backwards))
bug(
    "records in flight are not part of the snapshot",
    (Subtask, "_complete_snapshot", _loses_in_flight),
    **IN_FLIGHT,
)
bug(
    "records in flight are restored twice",
    (
        RestoredState,
        "in_flight",
        lambda o: lambda self, vertex: o(self, vertex) * 2,
    ),
    **IN_FLIGHT,
)
bug(
    "a channel that has ended is waited for, and brings no barrier any more",
    (Alignment, "ended", instead([])),
    (Subtask, "_take_snapshot", _silent_when_finished),
)


def _flushes_backwards(original: Any) -> Any:
    def take(self: Any, order: Any) -> None:
        self._opened.reverse()
        original(self, order)
        self._opened.reverse()

    return take


bug(
    "what is held back is let go from the end of the chain",
    (Subtask, "_take_snapshot", _flushes_backwards),
    holds=True,
)
bug(
    "a barrier is not sent on",
    (
        ChannelWriter,
        "broadcast",
        lambda o: (
            lambda self, element: (
                None
                if isinstance(element, Barrier) and element.checkpoint_id % 3 == 0
                else o(self, element)
            )
        ),
    ),
)
bug(
    "the end of an input is not sent on",
    (Subtask, "_end_again", instead(None)),
)
bug(
    "what had ended runs again after a restore",
    (
        RestoredState,
        "subtask",
        lambda o: lambda self, vertex: replace(o(self, vertex), is_finished=False),
    ),
)

section(
    "checkpoint",
    "pause a slot @ a barrier starts",
    moments=(),
    interval=600_000,
    timeout=1,
    tolerable=10**6,
    faults=3,
    width=2,
)
bug(
    "an aborted checkpoint keeps its channels blocked",
    (Alignment, "abort", lambda o: lambda self, number: (o(self, number), [])[1]),
)
