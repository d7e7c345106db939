"""Looks after the sinks of a job that have something to do in the driver."""

from __future__ import annotations

import threading

from tidegate.connectors.driver_side import DriverSide
from tidegate.driver.collectors import Collectors
from tidegate.graph.job_graph import JobGraph
from tidegate.operators.endpoints import SinkOperator


class Attendance:
    """Tells them of the start, hands on what their committers deliver, and waits for them."""

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
        """The job is about to be sent to the slots; what a sink raises is raised."""
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
        """Until all have done their part; the collectors must have ended."""
        for thread in self._threads:
            thread.join()

    def _attend(self, side: DriverSide) -> None:
        for record in self._collectors.records(side.collector, None):
            side.delivered(record)
        side.ended()
