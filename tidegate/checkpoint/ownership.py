"""Which driver may write to the directory of a job."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from xxhash import xxh3_64_intdigest

from tidegate.checkpoint.layout import epoch_of, owner_of
from tidegate.core.errors import BlobNotFound, CorruptCheckpoint, DirectoryTaken
from tidegate.storage.blob_store import BlobStore
from tidegate.storage.locations import below, shown


@dataclass(frozen=True, slots=True)
class Ownership:
    """A driver owns a directory through the file `owner-<n>` with the highest epoch n."""

    epoch: int
    proof: bytes
    is_first: bool
    """Whether nobody has owned the directory before, or all files of its owners are gone."""

    @classmethod
    def claim(cls, store: BlobStore, job_name: str = "") -> tuple[Ownership, list[str]]:
        """Take over a directory from its current owner; also returns its contents.

        Args:
            store: the directory.
            job_name: recorded, so that the job can be found before it has a checkpoint.
        """
        proof = _sealed({"token": secrets.token_hex(16), "job": job_name, "since": time.time()})
        epochs = _epochs(store.list())
        while True:
            epoch = max(epochs, default=0) + 1
            is_new = store.create_if_absent(owner_of(epoch), proof)
            present = list(store.list())
            epochs = _epochs(present)
            # Since the first listing, other drivers may have come and gone, with their files.
            if is_new and max(epochs, default=0) == epoch:
                break
        # Oldest first: a replaced owner finds its own file gone, or that of its successor.
        for earlier in sorted(epochs - {epoch}):
            store.delete(owner_of(earlier))
        return cls(epoch, proof, is_first=epochs == {epoch}), present

    def is_held(self, store: BlobStore) -> bool:
        """Whether no other driver has taken over the directory."""
        # The order matters: the successor's file may be deleted, but only after this one's.
        if store.exists(owner_of(self.epoch + 1)):
            return False
        try:
            return store.read(owner_of(self.epoch)) == self.proof
        except BlobNotFound:
            return False

    def check(self, store: BlobStore) -> None:
        """Raise DirectoryTaken if another driver has taken over the directory."""
        if not self.is_held(store):
            raise DirectoryTaken(shown(store.url), self.epoch)


def _epochs(paths: Iterable[str]) -> set[int]:
    return {epoch for path in paths if (epoch := epoch_of(path)) is not None}


def owned_since(store: BlobStore, owner: str, job_name: str) -> float | None:
    """When a job of this name claimed the directory with this file; None: it is another job.

    Raises:
        CorruptCheckpoint: the file is damaged.
    """
    try:
        data = store.read(owner)
    except BlobNotFound:
        return None
    try:
        found = _unsealed(data)
        return float(found["since"]) if found["job"] == job_name else None
    except (ValueError, KeyError, TypeError):
        location = shown(below(store.url, owner))
        raise CorruptCheckpoint(location, "facts with their checksum", "others") from None


def _sealed(facts: dict[str, Any]) -> bytes:
    """The facts with their checksum."""
    data = json.dumps(facts).encode()
    return b"%b %016x" % (data, xxh3_64_intdigest(data))


def _unsealed(data: bytes) -> Any:
    """The facts, which earlier versions wrote without a checksum."""
    facts, _, checksum = data.rpartition(b" ")
    is_sealed = checksum == b"%016x" % xxh3_64_intdigest(facts)
    return json.loads(facts if is_sealed else data)
