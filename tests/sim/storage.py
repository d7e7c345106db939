"""An object store that can be slow, refuse, answer too late, or kill its user."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.memory_store import MemoryStore
from tests.sim.clockwork import Killed
from tidegate.checkpoint.layout import METADATA
from tidegate.core.errors import StorageError
from tidegate.storage.blob_store import BlobWriter

if TYPE_CHECKING:
    from tests.sim.world import World


_MOMENTS: dict[str, Callable[[str], str]] = {
    "put": lambda path: "state is written",
    "create": lambda path: (
        "metadata is created" if path.endswith(METADATA) else "a directory is claimed"
    ),
    "delete": lambda path: "something is deleted",
}


class Bucket:
    """All blobs, by absolute path."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.blobs: dict[str, bytes] = {}

    def open(self, path: Path) -> SimulatedStore:
        return SimulatedStore(self, str(path))


class SimulatedStore(MemoryStore):
    """A directory of the bucket. A failed operation may have taken effect."""

    def __init__(self, bucket: Bucket, url: str) -> None:
        super().__init__(url)
        self._bucket = bucket
        self._blobs = _Below(bucket.blobs, url)  # type: ignore[assignment]

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        data = self._ask("read", path, lambda: super(SimulatedStore, self).read(path, offset, size))
        is_checked = "/" in path or "/savepoint-" in self.url
        return self._bucket.world.damaged(data) if is_checked else data  # type: ignore[no-any-return]

    def exists(self, path: str) -> bool:
        return self._ask("exists", path, lambda: super(SimulatedStore, self).exists(path))

    def list(self, path: str = "") -> Iterator[str]:
        """Page by page: what comes and goes meanwhile is in it, or not."""

        def pages() -> Iterator[str]:
            first = sorted(super(SimulatedStore, self).list(path))
            if not self._bucket.world.turns_a_page(len(first)):
                return iter(first)
            last = first[len(first) // 2 - 1]
            rest = sorted(super(SimulatedStore, self).list(path))
            return iter([p for p in first if p <= last] + [p for p in rest if p > last])

        return self._ask("list", path, pages)

    @contextmanager
    def writer(self, path: str) -> Iterator[BlobWriter]:
        """What cannot be written, or is written by a dying process, may leave a part behind."""
        buffer = io.BytesIO()
        yield buffer
        data = buffer.getvalue()
        try:
            self.put(path, data)
        except (StorageError, Killed):
            sim = self._bucket.world.sim
            is_now = sim.current is None or sim.current.is_alive
            if is_now and sim.chance(0.5):
                super().put(path, data[: len(data) // 2])
            raise

    def put(self, path: str, data: bytes) -> None:
        def put() -> bool:
            super(SimulatedStore, self).put(path, data)
            return True

        self._request("put", path, put)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self._request(
            "create", path, lambda: super(SimulatedStore, self).create_if_absent(path, data)
        )

    def _request(self, what: str, path: str, act: Callable[[], bool]) -> bool:
        """If it is not answered, it may arrive later, even after its process has died."""
        try:
            return bool(self._ask(what, path, act))
        except (StorageError, Killed):
            sim = self._bucket.world.sim
            is_state = what == "put" and "/" in path  # the next driver removes it
            if not is_state and not super().exists(path) and sim.chance(0.3):
                sim.later(
                    sim.delay(0.5), "a request arrives late", lambda: self._arrive(what, path, act)
                )
            raise

    def _arrive(self, what: str, path: str, act: Callable[[], bool]) -> None:
        checks, where = self._bucket.world.checks, f"{self.url}/{path}"
        self._bucket.world.sim.note(f"    {what} {where}")
        if act():
            checks.appears(where) if what == "create" else checks.stored(what, where, True)

    def delete(self, path: str) -> None:
        if not path:
            self._bucket.world.checks.removes(self.url)
        self._ask("delete", path, lambda: super(SimulatedStore, self).delete(path))

    def _ask(self, what: str, path: str, act: Callable[[], Any]) -> Any:
        world = self._bucket.world
        where = f"{self.url}/{path}"
        if what in _MOMENTS:
            world.moment(_MOMENTS[what](path))
        failure = StorageError(where, "no answer", "wait")
        with world.outside(where, what, "storage", failure):
            done = act()
            world.checks.stored(what, where, done)
        return done


class _Below(dict[str, bytes]):
    """The blobs below a directory, by relative path."""

    def __init__(self, blobs: dict[str, bytes], url: str) -> None:
        super().__init__()
        self._all, self._prefix = blobs, f"{url}/"

    def __setitem__(self, path: str, data: bytes) -> None:
        self._all[self._prefix + path] = data

    def __delitem__(self, path: str) -> None:
        del self._all[self._prefix + path]

    def __contains__(self, path: object) -> bool:
        return f"{self._prefix}{path}" in self._all

    def __iter__(self) -> Iterator[str]:
        cut = len(self._prefix)
        return iter([path[cut:] for path in self._all if path.startswith(self._prefix)])

    def get(self, path: str, default: Any = None) -> Any:
        return self._all.get(self._prefix + path, default)
