"""Slots of a job without their surroundings, for the tests of what runs in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.programs import settings_of
from tidegate.core.clock import ManualClock
from tidegate.core.ids import new_job_id
from tidegate.driver.split_enumerator import SplitAssigner
from tidegate.graph.job_graph import JobGraph
from tidegate.protocol.messages import SlotMessage, StepRequest
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.transport.shipping import pack


def shipped(job: JobGraph) -> bytes:
    return pack(new_job_id(), job, settings_of().as_mapping(), to_other_processes=False)


class Requests:
    """Step requests as the driver would make them."""

    def __init__(self, job: JobGraph, attempt: int = 1) -> None:
        self._pipeline = job.pipelines[0]
        self._attempt = attempt
        self._assigner = SplitAssigner(self._pipeline, {})

    def make(self, step: int = 1, *, records: int = 1000, barriers: Any = ()) -> StepRequest:
        return StepRequest(
            pipeline=self._pipeline.id,
            attempt=self._attempt,
            step=step,
            slice_records=records,
            slice_bytes=1 << 20,
            barriers=tuple(barriers),
            assignments=self._assigner.assign(),
        )


class Surroundings:
    """A clock that stands still, a directory, and everything that is said or delivered."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(100.0)
        self.directory = directory
        self.console: list[str] = []
        self.delivered: list[tuple[str, int, list[Any]]] = []
        self.sent: list[SlotMessage] = []

    def deliver(self, subtask: int, collector: str, batch: Any) -> None:
        self.delivered.append((collector, subtask, list(batch.records)))

    def records(self, collector: str = "results") -> list[Any]:
        return [r for name, _, records in self.delivered if name == collector for r in records]


def exchange(answers: list[UnitAnswer]) -> dict[int, list[Any]]:
    """The packets of all slots by the slot they go to."""
    packets: dict[int, list[Any]] = {slot: [] for slot in range(len(answers))}
    for answer in answers:
        for packet in answer.packets:
            packets[packet.header.target_subtask].append(packet)
    return packets
