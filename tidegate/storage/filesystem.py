"""Opens a blob store for any path or URL."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from tidegate.core.errors import StorageError
from tidegate.storage.arrow_store import ArrowStore, AtomicCreation
from tidegate.storage.blob_store import BlobStore
from tidegate.storage.failures import storage_error
from tidegate.storage.hdfs import HdfsStore
from tidegate.storage.local import LocalStore
from tidegate.storage.locations import fsspec_file_system, local_path, shown

_OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")


def open_store(url: str) -> BlobStore:
    """The directory at a path or URL. It need not exist: the first blob creates it."""
    path = local_path(url)
    if path is not None:
        return LocalStore(path)
    scheme = urlsplit(url).scheme
    if scheme in ("hdfs", "viewfs"):
        return HdfsStore(url)
    create = s3_creation(url) if scheme == "s3" else fsspec_creation(url)
    return ArrowStore(url, create, is_object_store=scheme in _OBJECT_STORES)


def s3_creation(url: str) -> AtomicCreation:
    """Creates blobs with a conditional put, which Arrow lacks, from Arrow's URL settings."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise StorageError(
            shown(url),
            "Arrow alone cannot publish checkpoints on S3",
            "pip install 'tidegate[s3]'",
        ) from None
    parts = urlsplit(url)
    settings = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    endpoint = settings.get("endpoint_override")
    if endpoint and "://" not in endpoint:
        endpoint = f"{settings.get('scheme', 'https')}://{endpoint}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=settings.get("region"),
        aws_access_key_id=unquote(parts.username) if parts.username else None,
        aws_secret_access_key=unquote(parts.password) if parts.password else None,
        config=Config(retries={"max_attempts": 3, "mode": "standard"}),
    )

    def create(path: str, data: bytes) -> bool:
        bucket, _, key = path.partition("/")
        try:
            client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 412:
                return False
            raise storage_error(shown(f"s3://{path}"), error) from error
        except BotoCoreError as error:
            raise storage_error(shown(f"s3://{path}"), error) from error
        return True

    return create


def fsspec_creation(url: str) -> AtomicCreation:
    """As atomic as the exclusive creation of this fsspec file system."""
    file_system, _ = fsspec_file_system(url)

    def create(path: str, data: bytes) -> bool:
        try:
            file_system.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        return True

    return create
