"""Types for the numbers and strings that identify things in all layers."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import NamedTuple, NewType

JobId = NewType("JobId", str)
OperatorId = NewType("OperatorId", str)
"""Stable identity of an operator's state: the user's uid, or a hash of its graph position."""
VertexId = NewType("VertexId", int)
"""Position of a vertex in the topological order of its job graph."""
EdgeId = NewType("EdgeId", int)
PipelineId = NewType("PipelineId", int)
"""A connected component of the job graph: one step loop, one failover region."""
SlotIndex = NewType("SlotIndex", int)
SubtaskIndex = NewType("SubtaskIndex", int)
CheckpointId = NewType("CheckpointId", int)
Attempt = NewType("Attempt", int)
"""How often a region was deployed; messages of older attempts are stale."""
StepNumber = NewType("StepNumber", int)
Level = NewType("Level", int)
"""The number of exchanges between the sources and a vertex, on the longest path."""
KeyGroup = NewType("KeyGroup", int)


def new_job_id() -> JobId:
    """Return a fresh id in Flink's form: 32 hexadecimal digits."""
    return JobId(secrets.token_hex(16))


class SubtaskId(NamedTuple):
    """One subtask of one vertex."""

    vertex: VertexId
    subtask: SubtaskIndex


@dataclass(frozen=True, slots=True)
class Address:
    """Where a process listens: by Unix socket for its own host, by TCP for others."""

    host: str
    port: int
    unix_path: str | None = None
    machine: str = ""
    """Identifies the kernel of `unix_path`; sockets of another kernel cannot be reached."""

    def __str__(self) -> str:
        by_tcp = f"{self.host}:{self.port}" if self.host else None
        return " or ".join(filter(None, (self.unix_path, by_tcp)))
