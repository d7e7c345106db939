"""A store of blobs for any path or URL."""

from __future__ import annotations

from urllib.parse import urlsplit

from tidegate.storage.arrow_store import ArrowStore
from tidegate.storage.atomic_creation import fsspec_creation, s3_creation
from tidegate.storage.blob_store import BlobStore
from tidegate.storage.hdfs import HdfsStore
from tidegate.storage.local import LocalStore
from tidegate.storage.locations import local_path

_OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")


def open_store(url: str) -> BlobStore:
    """The directory that a path or URL names. It need not exist: the first blob makes it."""
    path = local_path(url)
    if path is not None:
        return LocalStore(path)
    scheme = urlsplit(url).scheme
    if scheme in ("hdfs", "viewfs"):
        return HdfsStore(url)
    create = s3_creation(url) if scheme == "s3" else fsspec_creation(url)
    return ArrowStore(url, create, is_object_store=scheme in _OBJECT_STORES)
