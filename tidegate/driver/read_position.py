"""How far the sources of a pipeline have read, over all its attempts. Pure."""

from __future__ import annotations

from tidegate.core.ids import CheckpointId

_MOST = 100
"""Checkpoints whose position is known: many more than are ever retained."""


class ReadPosition:
    """Counts from where the first attempt began; an attempt tells what it has read itself."""

    def __init__(self) -> None:
        self._base = 0
        self._furthest = 0
        self._at: dict[CheckpointId, int] = {}

    def triggered(self, checkpoint_id: CheckpointId, read: int) -> None:
        """A checkpoint holds what the present attempt has read until now."""
        self._at[checkpoint_id] = self._base + read
        for oldest in sorted(self._at)[:-_MOST]:
            del self._at[oldest]

    def restarted(self, checkpoint_id: CheckpointId | None, read: int) -> None:
        """An attempt that has read so much is followed by one that begins at a checkpoint."""
        self._furthest = max(self._furthest, self._base + read)
        self._base = 0 if checkpoint_id is None else self._at.get(checkpoint_id, 0)

    def to_repeat(self, read: int) -> int:
        """Records that the present attempt has still to read until it is where another was."""
        return max(0, self._furthest - self._base - read)
