"""A complete checkpoint or savepoint, wherever it is met: taken, found, restored from."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.core.errors import InternalError
from tidegate.core.ids import CheckpointId
from tidegate.state.snapshot.reader import CheckpointLocation, FileResolver
from tidegate.storage.locations import below, shown

NOT_ADDRESSABLE = "<checkpoint-not-externally-addressable>"
"""In place of the path of a checkpoint in the driver's memory, in Flink's words."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What it holds, and where its files are."""

    metadata: CheckpointMetadata
    location: CheckpointLocation | None
    """None: it is in the driver's memory and has no files."""

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self.metadata.checkpoint_id

    @property
    def url(self) -> str | None:
        """Where to open it; may contain credentials."""
        return None if self.location is None else below(*self.location)

    @property
    def path(self) -> str:
        """Where it is, for people: without credentials."""
        return NOT_ADDRESSABLE if self.url is None else shown(self.url)

    def resolver(self) -> FileResolver:
        """Opens its store; finds its files there."""
        if self.location is None:
            raise InternalError(f"checkpoint {self.checkpoint_id} has no files")
        return self.location.resolver()
