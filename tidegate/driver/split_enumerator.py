"""Assigns splits to readers: the enumerators of a pipeline's sources."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from dataclasses import replace

from tidegate.connectors.source import EnumeratorContext, SplitEnumerator
from tidegate.core.ids import SubtaskIndex, VertexId
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.messages import SplitAssignment

Assignments = dict[tuple[VertexId, SubtaskIndex], SplitAssignment]


class SplitAssigner:
    """Asks the enumerators before each step; lives for one attempt of the pipeline.

    The enumerators of `ended` sources are not opened: later checkpoints hold their restored state.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        restored: Mapping[VertexId, bytes],
        job: EnumeratorContext | None = None,
        ended: Collection[VertexId] = (),
    ) -> None:
        self._job = job or EnumeratorContext()
        self._vertices = [vertex for vertex in pipeline.sources if vertex.id not in ended]
        self._restored = restored
        self._kept = {id: state for id, state in restored.items() if id in ended}
        self._enumerators: dict[VertexId, SplitEnumerator] = {}
        self._told_all: set[VertexId] = set()

    def _open(self) -> None:
        for vertex in self._vertices:
            assert vertex.source is not None
            enumerator = vertex.source.create_enumerator()
            self._enumerators[vertex.id] = enumerator
            enumerator.context = replace(self._job, operator_id=vertex.chain[0].operator_id)
            enumerator.open()
            if vertex.id in self._restored:
                enumerator.restore(pickle.loads(self._restored[vertex.id]))

    @property
    def may_find_more(self) -> bool:
        """Whether asking the enumerators again may yield more splits."""
        return len(self._told_all) < len(self._vertices)

    @property
    def is_ready(self) -> bool:
        """Whether all sources have listed their input."""
        return all(enumerator.is_ready() for enumerator in list(self._enumerators.values()))

    def assign(self) -> Assignments:
        """New splits by reader, and which readers have received their last one."""
        if len(self._enumerators) < len(self._vertices):
            self._open()
        assignments: Assignments = {}
        for vertex in self._vertices:
            if vertex.id in self._told_all:
                continue
            enumerator = self._enumerators[vertex.id]
            found = enumerator.next_splits(vertex.parallelism)
            no_more = enumerator.is_exhausted()
            for subtask in range(vertex.parallelism):
                splits = tuple(found.get(subtask, ()))
                if splits or no_more:
                    subtask_id = (vertex.id, SubtaskIndex(subtask))
                    assignments[subtask_id] = SplitAssignment(splits=splits, no_more=no_more)
            if no_more:
                self._told_all.add(vertex.id)
        return assignments

    def snapshot(self) -> dict[VertexId, bytes]:
        """The pickled enumerator states; every assigned split belongs to its reader."""
        states = {
            id: pickle.dumps(enumerator.snapshot(), protocol=5)
            for id, enumerator in self._enumerators.items()
        }
        return {**self._kept, **states}

    def close(self) -> None:
        for enumerator in self._enumerators.values():
            enumerator.close()
        self._enumerators.clear()
