"""The checkpoints of one job in their directory, in Flink's layout.

<dir>/<job id>/chk-<n>/_metadata     written last and atomically: this completes the checkpoint
               chk-<n>/<file>        state of this checkpoint only
               shared/<file>         state that several checkpoints may reference
               taskowned/            files of sources, which delete them themselves
               last-id-<e>-<n>       the driver of epoch e has begun checkpoint n
               owner-<epoch>         the driver that may write here
               closed-<e>-<m>-<n>    the driver of epoch e found m as the latest checkpoint: those
                                     after it, up to n, do not count
               void-<e>-<n>          the driver of epoch e could not publish n: it does not count
               stopped-<n>           the job has ended; contains the path of its last savepoint
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from xxhash import xxh3_64_intdigest

from tidegate.checkpoint.layout import (
    METADATA,
    SHARED,
    closed_by,
    closes_nothing,
    directory_of,
    highest_in,
    id_of,
    is_last_id,
    is_ours,
    is_temporary,
    last_id_of,
    published,
    stop_in,
    stopped_by,
    void_by,
)
from tidegate.checkpoint.metadata import CheckpointMetadata, decode, encode
from tidegate.checkpoint.ownership import Ownership
from tidegate.core.errors import (
    BlobNotFound,
    CorruptCheckpoint,
    DirectoryTaken,
    JobStopped,
    StorageError,
    TidegateError,
    UnsupportedFormat,
)
from tidegate.core.ids import CheckpointId
from tidegate.state.pointers import FileScope, SubtaskSnapshot, path_of
from tidegate.storage.blob_store import BlobStore
from tidegate.storage.locations import below, shown

_NO_ID: Final = CheckpointId(0)
_UNREADABLE: Final = CheckpointId(-1)
"""Pins every shared file that existed at the start, because its references are unknown."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A checkpoint that exists but cannot be used."""

    name: str
    """The name of its directory, such as "chk-7"."""
    path: str
    """Its path or URL, without credentials."""
    error: TidegateError

    @property
    def checkpoint_id(self) -> CheckpointId:
        return id_of(self.name) or _NO_ID


@dataclass(frozen=True, slots=True)
class Retained:
    """The checkpoints found in a directory, oldest first."""

    checkpoints: tuple[CheckpointMetadata, ...]
    unreadable: tuple[Unreadable, ...]


class CheckpointStore:
    """Publishes, finds and deletes the checkpoints of one job.

    Creating an instance takes ownership of the directory, unless the job has ended. Methods are
    thread-safe.
    """

    def __init__(self, store: BlobStore, job_name: str = "") -> None:
        self._store = store
        self._lock = threading.Lock()
        self._shared = _SharedFiles()
        self._garbage: set[str] = set()
        """Paths that are no longer needed but could not be deleted yet."""
        self._stopped: CheckpointId | None = None
        """The savepoint elsewhere that the job ends with."""
        self._attempted: dict[CheckpointId, int] = {}
        """The checksum of metadata that this driver has tried to publish."""
        self._ruled_out: set[CheckpointId] = set()
        self._notes: list[str] = []
        """The files that record the last ids used."""
        self.ownership, present = Ownership.claim(store, job_name)
        """Lets slots check whether this driver still owns the directory."""
        found = published(present)
        latest = max(found, default=_NO_ID)
        stops = {path: number for path in present if (number := stop_in(path)) is not None}
        for path, number in stops.items():
            # Sinks have committed, or will commit, results that no remaining checkpoint covers;
            # unless the stop was aborted and the job went on before this mark arrived.
            if number >= latest:
                raise JobStopped(shown(store.url), store.read(path).decode(), path)
        self.highest_id = highest_in(present)
        """The highest checkpoint id ever used in the directory; 0 for none."""
        store.put(closed_by(self.ownership.epoch, latest, self.highest_id), b"")
        for path in present:
            if path in stops or is_last_id(path) or closes_nothing(path, found):
                store.delete(path)
        self._retained = self._read_all(reversed(found))
        for metadata in self._retained.checkpoints:
            self._shared.register(metadata.checkpoint_id, metadata.shared_files)
        if self._retained.unreadable:
            known = [path[len(SHARED) + 1 :] for path in present if path.startswith(f"{SHARED}/")]
            self._shared.register(_UNREADABLE, known)

    @property
    def directory(self) -> str:
        """The path or URL of the job's directory."""
        return self._store.url

    def retained(self) -> Retained:
        """The checkpoints that existed when the directory was claimed."""
        return self._retained

    def still_owned(self) -> bool:
        """Whether no other driver has taken over the directory.

        Checked before every deletion: the files may belong to the other driver.
        """
        return self.ownership.is_held(self._store)

    def check_owned(self) -> None:
        """Raise DirectoryTaken if another driver has taken over the directory."""
        self.ownership.check(self._store)

    def begin(self, checkpoint_id: CheckpointId, base: CheckpointId | None = None) -> None:
        """Prepare for a checkpoint; its id is used from here on.

        The shared files of its base are kept until the checkpoint is published or abandoned, even
        if the base is discarded.

        Raises:
            DirectoryTaken: another driver owns the directory.
        """
        self.check_owned()
        with self._lock:
            if base is not None:
                self._shared.hold(checkpoint_id, base)
            self.highest_id = max(self.highest_id, checkpoint_id)
        note = last_id_of(self.ownership.epoch, self.highest_id)
        try:
            # A file per id: a request that arrives late cannot lower it.
            self._store.put(note, b"")
        except StorageError:
            self._settle(checkpoint_id)
            raise
        with self._lock:
            # The file before stays: whoever lists the directory meanwhile finds this one or that.
            self._garbage.update(self._notes[:-1])
            self._notes = [*self._notes[-1:], note]

    def publish(self, metadata: CheckpointMetadata) -> str:
        """Make a checkpoint durable; returns its path or URL. May be repeated.

        Raises:
            StorageError: it is unknown whether it is published; ask `is_published`.
            DirectoryTaken: another driver owns the directory, and resumes from this checkpoint or
                from the previous one: do not notify anybody.
        """
        self.check_owned()
        checkpoint_id = metadata.checkpoint_id
        data = encode(metadata)
        with self._lock:
            self._shared.register(checkpoint_id, metadata.shared_files)
            self._attempted[checkpoint_id] = xxh3_64_intdigest(data)
        is_new = self._store.create_if_absent(_metadata_path(checkpoint_id), data)
        if not is_new and not self.is_published(checkpoint_id):
            raise DirectoryTaken(shown(self._store.url), self.ownership.epoch)
        # Drivers that claim the directory from here on find it; earlier ones may have missed it.
        self.check_owned()
        self._settle(checkpoint_id)
        return self._path_of(checkpoint_id)

    def is_published(self, checkpoint_id: CheckpointId) -> bool:
        """Whether the last attempt to publish this checkpoint succeeded.

        Raises:
            StorageError: this is unknown; ask again.
        """
        if checkpoint_id in self._ruled_out:
            return False
        path = _metadata_path(checkpoint_id)
        with self._lock:
            attempted = self._attempted.get(checkpoint_id)
        try:
            found = self._store.read(path)
            if xxh3_64_intdigest(found) == attempted:
                return True
            if self._store.read(path) != found:
                location = shown(below(self._store.url, path))
                raise StorageError(location, "two reads give different bytes", "read it again")
        except BlobNotFound:
            pass
        return False

    def rule_out(self, checkpoint_id: CheckpointId) -> None:
        """Make a checkpoint void that is not published: the request to create it may still arrive.

        Raises:
            StorageError: it may count or not; repeat this.
            DirectoryTaken: another driver owns the directory, and may have found it.
        """
        if self._store.may_act_late:
            self._ruled_out.add(checkpoint_id)
            self._store.put(void_by(self.ownership.epoch, checkpoint_id), b"")
            self.check_owned()

    def stop(self, checkpoint_id: CheckpointId, savepoint: str) -> None:
        """Mark the job as ended with a savepoint, for drivers that take it over."""
        self._store.put(stopped_by(checkpoint_id), savepoint.encode())
        self._stopped = checkpoint_id

    def do_not_stop(self, checkpoint_id: CheckpointId) -> None:
        """Undo `stop`: this savepoint was aborted. Another one may have ended the job since."""
        if self._stopped == checkpoint_id:
            self._stopped = None
        self._store.delete(stopped_by(checkpoint_id))

    def end(self) -> None:
        """Mark the job as ended before its checkpoints are deleted: nobody may restart it."""
        if self._stopped is None and self.still_owned():
            self._store.put(stopped_by(self.highest_id), b"")

    def discard(self, checkpoint_id: CheckpointId) -> None:
        """Delete a checkpoint, with the shared files that no other one needs. May be repeated."""
        if not self.still_owned():
            return
        self._store.delete(_metadata_path(checkpoint_id))
        with self._lock:
            self._attempted.pop(checkpoint_id, None)
            unneeded = self._shared.release(checkpoint_id)
        self._delete([directory_of(checkpoint_id), *(f"{SHARED}/{name}" for name in unneeded)])

    def abandon(
        self,
        checkpoint_id: CheckpointId,
        snapshots: Iterable[SubtaskSnapshot],
        *,
        is_whole: bool = True,
    ) -> None:
        """Delete the files of a checkpoint that will never be published.

        Args:
            checkpoint_id: its id.
            snapshots: what subtasks have reported.
            is_whole: the checkpoint is aborted; otherwise only these snapshots are, such as late
                ones.
        """
        if not self.still_owned():
            return
        files = {file for snapshot in snapshots for file in snapshot.files}
        if is_whole and checkpoint_id in self._attempted:
            self._store.delete(_metadata_path(checkpoint_id))
        with self._lock:
            unneeded = {f.name for f in files if f.scope is FileScope.SHARED}
            if is_whole:
                self._attempted.pop(checkpoint_id, None)
                unneeded |= self._shared.release(checkpoint_id)
                unneeded |= self._shared.settle(checkpoint_id)
            unneeded = set(self._shared.unneeded(unneeded))
        directory = directory_of(checkpoint_id)
        own = [path_of(f, directory) for f in files if f.scope is FileScope.EXCLUSIVE]
        self._delete([*([directory] if is_whole else own), *(f"{SHARED}/{n}" for n in unneeded)])

    def clean_leftovers(self) -> list[str]:
        """Delete what no retained checkpoint references; call it before the first checkpoint.

        The references of an unreadable checkpoint are unknown: its directory and all shared files
        are kept.

        Returns:
            The deleted paths.
        """
        known = {
            path_of(file, directory_of(metadata.checkpoint_id))
            for metadata in self._retained.checkpoints
            for file in metadata.files
        }
        known |= {_metadata_path(each.checkpoint_id) for each in self._retained.checkpoints}
        unknown = {each.name for each in self._retained.unreadable}
        leftovers = [
            path
            for path in self._store.list()
            if path not in known
            and (
                is_temporary(path)
                or (path.startswith(f"{SHARED}/") and not unknown)
                or (
                    id_of(directory := path.partition("/")[0]) is not None
                    and directory not in unknown
                )
            )
        ]
        if not self.still_owned():
            return []
        self._delete(leftovers)
        return leftovers

    def remove_if_empty(self) -> None:
        """Delete the directory, unless it contains a checkpoint or foreign files."""
        if not self.still_owned():
            return
        present = list(self._store.list())
        if all(map(is_ours, present)) and not published(present):
            # The mark of its end goes last: who dies meanwhile must not leave a job to be resumed.
            self._delete(path for path in present if stop_in(path) is None)
            self._store.delete("")
        elif self._stopped is None:
            self._store.delete(stopped_by(self.highest_id))

    def _path_of(self, checkpoint_id: CheckpointId) -> str:
        """The path or URL of a checkpoint, without credentials."""
        return shown(below(self._store.url, directory_of(checkpoint_id)))

    def _read_all(self, ids: Iterable[CheckpointId]) -> Retained:
        readable: list[CheckpointMetadata] = []
        unreadable: list[Unreadable] = []
        for checkpoint_id in ids:
            path = _metadata_path(checkpoint_id)
            try:
                where = shown(below(self._store.url, path))
                readable.append(decode(self._store.read(path), where, checkpoint_id))
            except BlobNotFound:
                continue
            except (CorruptCheckpoint, UnsupportedFormat) as error:
                name = directory_of(checkpoint_id)
                unreadable.append(Unreadable(name, self._path_of(checkpoint_id), error))
        return Retained(tuple(readable), tuple(unreadable))

    def _settle(self, checkpoint_id: CheckpointId) -> None:
        with self._lock:
            unneeded = self._shared.settle(checkpoint_id)
        self._delete([f"{SHARED}/{name}" for name in unneeded])

    def _delete(self, paths: Iterable[str]) -> None:
        """Delete these paths and earlier failed ones; raises the first failure at the end."""
        with self._lock:
            self._garbage.update(paths)
            garbage = sorted(self._garbage)
        failure: StorageError | None = None
        for path in garbage:
            try:
                self._store.delete(path)
            except StorageError as error:
                failure = failure or error
            else:
                with self._lock:
                    self._garbage.discard(path)
        if failure is not None:
            raise failure


class _SharedFiles:
    """Reference counts of shared files, held by completed checkpoints and pending successors."""

    def __init__(self) -> None:
        self._named: dict[CheckpointId, frozenset[str]] = {}
        self._held: dict[CheckpointId, frozenset[str]] = {}
        self._counts: Counter[str] = Counter()

    def hold(self, pending: CheckpointId, base: CheckpointId) -> None:
        """Keep the files of a base until its pending successor is settled."""
        self._replace(self._held, pending, self._named.get(base, frozenset()))

    def settle(self, pending: CheckpointId) -> frozenset[str]:
        """Release a published or aborted checkpoint; returns the files no longer needed."""
        return self._replace(self._held, pending, frozenset())

    def register(self, checkpoint_id: CheckpointId, files: Iterable[str]) -> None:
        """Record the files that a checkpoint references."""
        self._replace(self._named, checkpoint_id, frozenset(files))

    def release(self, checkpoint_id: CheckpointId) -> frozenset[str]:
        """Remove a checkpoint; returns the files that are no longer needed."""
        return self._replace(self._named, checkpoint_id, frozenset())

    def unneeded(self, files: Iterable[str]) -> frozenset[str]:
        """The files that are no longer needed."""
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


def _metadata_path(checkpoint_id: CheckpointId) -> str:
    return f"{directory_of(checkpoint_id)}/{METADATA}"
