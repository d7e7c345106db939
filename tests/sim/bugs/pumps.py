"""Bugs of the exchange over an endless Spark job."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests.sim.bugs.planting import bug, section
from tidegate.core.errors import LineClosed
from tidegate.exchange.pipelined.exchange import _EndlessJob
from tidegate.exchange.unit_protocol import Frame
from tidegate.protocol.arrivals import Arrivals, PumpedJobs
from tidegate.slot.pump_lines import _LinesOfJob

section(
    "kill a pump",
    "start a pump twice",
    "pumps lag",
    "steps break",
    "kill a slot",
    "user code fails",
    moments=("cargo travels", "a pump is let in", "a step starts"),
    exchange="pipelined",
    faults=4,
    width=2,
)


bug(
    "a pump of an earlier job is let in",
    (PumpedJobs, "admits", lambda o: lambda self, pipeline, epoch: pipeline in self._epochs),
)


def _one_is_missing(original: Any) -> Any:
    def take(self: Any, cargo: Any) -> Any:
        found = original(self, cargo)
        waiting = self._input
        is_enough = len(waiting.complete) == self._slots - 1 and cargo.source in waiting.complete
        return waiting if found is None and is_enough else found

    return take


def _first_is_last(original: Any) -> Any:
    return lambda self, cargo: original(self, replace(cargo, is_last=True))


bug("a unit runs before the last slot has sent", (Arrivals, "take", _one_is_missing))
bug("a unit runs before the last packets of a slot have come", (Arrivals, "take", _first_is_last))


class _ReadyOnce:
    """The line to the driver, on which nobody says twice that all pumps are here."""

    def __init__(self, line: Any) -> None:
        self._line, self.receive = line, line.receive
        self.hang_up, self.has_room_for = line.hang_up, line.has_room_for

    def send(self, kind: Frame, *parts: bytes) -> None:
        if kind is not Frame.READY:
            self._line.send(kind, *parts)


def _replaced(original: Any) -> Any:
    def serve_pump(self: Any, connection: Any, level: Any) -> None:
        if level in self._pumps._present:
            self._pumps._present.remove(level)
            self._driver = _ReadyOnce(self._driver)
        original(self, connection, level)

    return serve_pump


bug(
    "a pump that was lost is replaced without a word",
    (_LinesOfJob, "serve_pump", _replaced),
    (_LinesOfJob, "_break", lambda o: lambda self: None),
    interval=600_000,
    tolerable=10**6,
)


def _first_report(original: Any) -> Any:
    def take(self: Any, slot: int, kind: int, payload: Any) -> bool:
        awaited = self._awaited
        if awaited is not None and awaited.frame == kind == Frame.REPORT:
            lines, self._lines = self._lines, self._lines[:1]
            try:
                return bool(original(self, slot, kind, payload))
            finally:
                self._lines = lines
        return kind == Frame.REPORT or bool(original(self, slot, kind, payload))

    return take


bug("a step is through when the first slot says so", (_EndlessJob, "_take", _first_report))


def _is_through(original: Any) -> Any:
    def wait_for(self: Any, frame: Any, answer: Any) -> None:
        def noted(outcome: Any) -> None:
            answer([] if frame is Frame.REPORT and isinstance(outcome, Exception) else outcome)

        original(self, frame, noted)

    return wait_for


bug("a step that was lost with its job counts as through", (_EndlessJob, "_await", _is_through))
bug(
    "a broken job is asked again",
    (_EndlessJob, "carries", lambda o: lambda self, addresses: self._addresses == addresses),
)


def _awaited_nevertheless(original: Any) -> Any:
    def run(self: Any, order: bytes, answer: Any) -> None:
        self._is_at_rest = False
        self._await(Frame.REPORT, answer)
        with suppress(LineClosed):
            for line in self._lines:
                line.send(Frame.STEP, order)

    return run


bug(
    "a step that the system refused to send is awaited",
    (_EndlessJob, "run", _awaited_nevertheless),
)


def _line_stays(original: Any) -> Any:
    def complain(self: Any) -> None:
        with suppress(LineClosed):
            if self._pumps.needs_all_pumps:
                self._driver.send(Frame.BROKEN)

    return complain


bug("a slot that can send nothing keeps its line", (_LinesOfJob, "_break", _line_stays))
