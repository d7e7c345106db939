"""Pumps that die at any moment, even at barriers and the end of input: everything counts once."""

from __future__ import annotations

import pickle
import queue
import struct
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import Phase, given
from hypothesis import strategies as st

from tests.effort import examples
from tests.programs import PATIENCE, collected, graph_of, mapped, read
from tests.unit.slot.test_pump_lines import EndlessJob
from tests.unit.slot.test_step_server import Slots
from tidegate.core.errors import LineClosed
from tidegate.exchange.codec import decode
from tidegate.exchange.shuffle import unit_order
from tidegate.exchange.unit_protocol import Frame
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Rebalance
from tidegate.protocol.messages import CheckpointAcknowledged, Collected, SlotReport, StepRequest
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier

RECORDS = 12


class FragileJob(EndlessJob):
    """One of its pumps dies after carrying a given amount."""

    def __init__(self, slots: Slots, epoch: int, victim: tuple[int, int], carried: int) -> None:
        self.victim, self.left = victim, carried
        super().__init__(slots, epoch)

    def carry(self, level: int, slot: int) -> None:
        if (level, slot) != self.victim:
            super().carry(level, slot)
            return
        pump = self.pumps[level, slot]
        try:
            while self.left:
                self.left -= 1
                _, payload = pump.receive()
                (target,) = struct.unpack_from(">I", payload)
                self.pumps[level + 1, target].send(Frame.CARGO, payload[4:])
        except (LineClosed, struct.error):  # the frame that ends the job has no target
            pass
        pump.close()

    def run(self, request: StepRequest) -> list[SlotReport] | None:
        """The reports of a step; None: the job has broken."""
        with suppress(LineClosed):
            for line in self.lines:
                line.send(Frame.STEP, unit_order(request, 0))
        reports: list[SlotReport] = []
        while len(reports) < len(self.lines):
            kind, payload = self.frames.get(timeout=PATIENCE)
            if kind != Frame.REPORT:
                return None
            reports.append(pickle.loads(payload))
        return reports

    def listen(self) -> None:
        """Receive from the slots; the first one to notice reports that the job has broken."""
        self.frames: queue.SimpleQueue[tuple[int | None, bytes]] = queue.SimpleQueue()
        for line in self.lines:
            threading.Thread(target=self._listen, args=(line,), daemon=True).start()

    def _listen(self, line: Any) -> None:
        with suppress(LineClosed):
            while True:
                self.frames.put(line.receive())
        self.frames.put((None, b""))


@st.composite
def jobs(draw: st.DrawFn) -> list[tuple[tuple[int, int], int]]:
    """Which pump of each endless job dies, and after how much; the last job survives."""
    victims = st.tuples(st.integers(0, 2), st.integers(0, 1))
    return draw(st.lists(st.tuples(victims, st.integers(0, 9)), max_size=6))


@examples(8, phases=[Phase.explicit, Phase.generate])
@given(jobs(), st.sets(st.integers(1, 5)))
def test_a_step_is_carried_out_once_whichever_pump_dies(
    deaths: list[tuple[tuple[int, int], int]], barriers: set[int]
) -> None:
    stream = mapped(lambda n: n, Upstream(read(range(RECORDS)), Rebalance()))
    stream = mapped(lambda n: n, Upstream(stream, Rebalance()))
    with tempfile.TemporaryDirectory(prefix="tg-") as directory:
        slots = Slots(graph_of(collected(stream), parallelism=2), Path(directory))
        try:
            check(slots, [*deaths, ((9, 9), 0)], barriers)
        finally:
            slots.close()


def check(slots: Slots, deaths: list[tuple[tuple[int, int], int]], barriers: set[int]) -> None:
    job = started(slots, 1, deaths)
    for step in range(1, 7):
        sent = [Barrier(step, 0.0)] if step in barriers else []  # type: ignore[arg-type]
        request = slots.requests.make(step, records=2, barriers=sent)
        while (reports := job.run(request)) is None:
            job.break_off()
            job = started(slots, job.epoch + 1, deaths)
        assert not any(report.marks for report in reports)
    job.break_off()
    found: Counter[int] = Counter()
    acknowledged: Counter[tuple[Any, Any]] = Counter()
    while len(acknowledged) < 6 * len(barriers) or not slots.said.empty():
        message = slots.said.get(timeout=PATIENCE)
        if isinstance(message, Collected):
            for batch in decode(message.payload, None):
                assert isinstance(batch, Batch)
                found.update(batch.records)
        elif isinstance(message, CheckpointAcknowledged):
            acknowledged[message.checkpoint_id, message.subtask] += 1
    assert found == Counter(range(RECORDS))
    assert set(acknowledged.values()) <= {1}


def started(slots: Slots, epoch: int, deaths: list[tuple[tuple[int, int], int]]) -> FragileJob:
    while True:
        job = FragileJob(slots, epoch, *deaths[min(epoch, len(deaths)) - 1])
        if job.is_ready():
            job.listen()
            return job
        job.break_off()
        epoch += 1
