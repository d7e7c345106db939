"""A complete checkpoint or savepoint."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.core.errors import InternalError
from tidegate.core.ids import CheckpointId
from tidegate.state.snapshot.reader import CheckpointLocation, FileResolver
from tidegate.storage.locations import below, shown

NOT_ADDRESSABLE = "<checkpoint-not-externally-addressable>"
"""Flink's placeholder for the path of a checkpoint in the driver's memory."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The metadata of a checkpoint, and where its files are."""

    metadata: CheckpointMetadata
    location: CheckpointLocation | None
    """None: it is in the driver's memory and has no files."""

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self.metadata.checkpoint_id

    @property
    def url(self) -> str | None:
        """The URL to open it with; may contain credentials."""
        return None if self.location is None else below(*self.location)

    @property
    def path(self) -> str:
        """The path to display, without credentials."""
        return NOT_ADDRESSABLE if self.url is None else shown(self.url)

    def resolver(self) -> FileResolver:
        """Open its store; the resolver finds its files there."""
        if self.location is None:
            raise InternalError(f"checkpoint {self.checkpoint_id} has no files")
        return self.location.resolver()
