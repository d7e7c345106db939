"""Which checkpoints need which shared files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidegate.core.ids import CheckpointId


class SharedFiles:
    """Counts who needs a file: completed checkpoints, and pending ones that build on them."""

    def __init__(self) -> None:
        self._named: dict[CheckpointId, frozenset[str]] = {}
        self._held: dict[CheckpointId, frozenset[str]] = {}
        self._counts: Counter[str] = Counter()

    @property
    def needed(self) -> frozenset[str]:
        return frozenset(self._counts)

    def hold(self, pending: CheckpointId, base: CheckpointId) -> None:
        """A checkpoint that is being taken may name files of another: they stay till `settle`."""
        self._replace(self._held, pending, self._named.get(base, frozenset()))

    def settle(self, pending: CheckpointId) -> frozenset[str]:
        """The checkpoint has been published or given up; returns the files nobody needs now."""
        return self._replace(self._held, pending, frozenset())

    def register(self, checkpoint_id: CheckpointId, files: Iterable[str]) -> None:
        """A checkpoint names these files."""
        self._replace(self._named, checkpoint_id, frozenset(files))

    def release(self, checkpoint_id: CheckpointId) -> frozenset[str]:
        """A checkpoint is gone; returns the files nobody needs now."""
        return self._replace(self._named, checkpoint_id, frozenset())

    def unneeded(self, files: Iterable[str]) -> frozenset[str]:
        """Those of the files that nobody needs."""
        return frozenset(name for name in files if name not in self._counts)

    def _replace(
        self,
        owners: dict[CheckpointId, frozenset[str]],
        checkpoint_id: CheckpointId,
        files: frozenset[str],
    ) -> frozenset[str]:
        self._counts.update(files)
        before = owners.pop(checkpoint_id, frozenset())
        if files:
            owners[checkpoint_id] = files
        for name in before:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]
        return self.unneeded(before)
