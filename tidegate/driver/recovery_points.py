"""The checkpoints that a job can go on from: its own, and those it was started from."""

from __future__ import annotations

from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.core.ids import CheckpointId
from tidegate.driver.checkpoint_home import CheckpointHome
from tidegate.protocol.completed import RestorePoint
from tidegate.storage.locations import below


class RecoveryPoints:
    """Which of its own is the latest is said by the coordinator, and given to the methods."""

    def __init__(self, home: CheckpointHome, *, claims: bool) -> None:
        self._home = home
        self._origins = list(home.origins)
        """Somebody else's checkpoints to go on from before there is one of our own."""
        self._own = {each.checkpoint_id: each for each in home.retained}
        self._claimed = [
            below(origin.location.job_directory, origin.location.name)
            for origin in home.origins
            if claims and origin.location is not None
        ]
        """What the job was started from and deletes when it can do without."""
        self.end: RestorePoint | None = None
        """The savepoint that the job ends with, once it is complete."""

    @property
    def own(self) -> list[CheckpointId]:
        return list(self._own)

    def add(self, metadata: CheckpointMetadata) -> list[str]:
        """A checkpoint of the job's own is complete; returns the paths that it makes needless."""
        self._own[metadata.checkpoint_id] = metadata
        needless, self._claimed = self._claimed, []
        return needless

    def remove(self, checkpoint_id: CheckpointId) -> None:
        self._own.pop(checkpoint_id, None)

    def at(self, latest: CheckpointId | None) -> RestorePoint | None:
        """Where to go on from; None: from nothing."""
        if self.end is not None:
            return self.end
        if latest is not None:
            return self._home.point(self._own[latest])
        return self._origins[-1] if self._origins else None

    def drop_origin(self) -> None:
        """The best one that the job was started from cannot be read."""
        self._origins.pop()
