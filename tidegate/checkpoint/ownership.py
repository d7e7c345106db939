"""Which driver may write into the directory of a job."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.checkpoint.layout import epoch_of, owner_of
from tidegate.core.errors import BlobNotFound, DirectoryTaken
from tidegate.storage.blob_store import BlobStore
from tidegate.storage.locations import shown


@dataclass(frozen=True, slots=True)
class Ownership:
    """A driver owns a directory by the file `owner-<n>` of the highest epoch n."""

    epoch: int
    proof: bytes

    @classmethod
    def claim(cls, store: BlobStore, job_name: str = "") -> tuple[Ownership, list[str]]:
        """Take over a directory from its current owner; returns its contents.

        Args:
            store: the directory.
            job_name: to find the job before it has a checkpoint.
        """
        proof = json.dumps(
            {"token": secrets.token_hex(16), "job": job_name, "since": time.time()}
        ).encode()
        epochs = _epochs(store.list())
        while True:
            epoch = max(epochs, default=0) + 1
            is_new = store.create_if_absent(owner_of(epoch), proof)
            present = list(store.list())
            epochs = _epochs(present)
            # Others may have come and gone since the first listing, their files with them.
            if is_new and max(epochs, default=0) == epoch:
                break
        # Oldest first: an owner that is replaced finds its own file gone, or the next one there.
        for earlier in sorted(epochs - {epoch}):
            store.delete(owner_of(earlier))
        return cls(epoch, proof), present

    def is_held(self, store: BlobStore) -> bool:
        """Whether no other driver has taken the directory over."""
        # In this order: the file of the next owner may be gone again, but only after this one's.
        if store.exists(owner_of(self.epoch + 1)):
            return False
        try:
            return store.read(owner_of(self.epoch)) == self.proof
        except BlobNotFound:
            return False

    def check(self, store: BlobStore) -> None:
        """Raise DirectoryTaken if another driver has taken the directory over."""
        if not self.is_held(store):
            raise DirectoryTaken(shown(store.url), self.epoch)


def _epochs(paths: Iterable[str]) -> set[int]:
    return {epoch for path in paths if (epoch := epoch_of(path)) is not None}


def owned_since(store: BlobStore, owner: str, job_name: str) -> float | None:
    """When a job of this name took the directory by this file; None: it is not of this name."""
    try:
        found = json.loads(store.read(owner))
        return float(found["since"]) if found["job"] == job_name else None
    except (BlobNotFound, ValueError, KeyError, TypeError):
        return None
