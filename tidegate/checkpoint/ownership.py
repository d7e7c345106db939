"""Which driver may write into the directory of a job."""

from __future__ import annotations

import json
import secrets
import time

from tidegate.checkpoint.layout import epoch_of, owner_of
from tidegate.core.errors import BlobNotFound
from tidegate.storage.blob_store import BlobStore


class Ownership:
    """A driver owns a directory by the file `owner-<n>` of the highest epoch n."""

    def __init__(self, store: BlobStore, epoch: int, proof: bytes) -> None:
        self._store = store
        self.epoch = epoch
        self._proof = proof

    @classmethod
    def claim(cls, store: BlobStore, present: list[str], job_name: str = "") -> Ownership:
        """Take a directory over, from whoever owns it.

        Args:
            store: the directory.
            present: the paths of the blobs in it.
            job_name: for those who look for the job before it has a checkpoint.
        """
        earlier = sorted(epoch for path in present if (epoch := epoch_of(path)) is not None)
        epoch = earlier[-1] if earlier else 0
        proof = json.dumps(
            {"token": secrets.token_hex(16), "job": job_name, "since": time.time()}
        ).encode()
        while True:
            epoch += 1
            if store.create_if_absent(owner_of(epoch), proof):
                break
            earlier.append(epoch)
        # Oldest first: an owner that is replaced finds its own file gone, or the next one there.
        for each in earlier:
            store.delete(owner_of(each))
        return cls(store, epoch, proof)

    def still_owned(self) -> bool:
        """Whether no other driver has taken the directory over."""
        try:
            proof = self._store.read(owner_of(self.epoch))
        except BlobNotFound:
            return False
        return proof == self._proof and not self._store.exists(owner_of(self.epoch + 1))


def owned_since(store: BlobStore, owner: str, job_name: str) -> float | None:
    """When a job of this name took the directory by this file; None: it is not of this name."""
    try:
        found = json.loads(store.read(owner))
        return float(found["since"]) if found["job"] == job_name else None
    except (BlobNotFound, ValueError, KeyError, TypeError):
        return None
