import os
import subprocess
import sys

import pytest

from tests.blob_store_contract import BlobStoreContract
from tests.checkpoint_store_contract import CheckpointStoreContract, own, shared, take
from tidegate.checkpoint.locate import check_files, find_latest, open_checkpoint
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.errors import StorageError
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below

pytestmark = pytest.mark.slow


class TestHdfsStore(BlobStoreContract):
    @pytest.fixture
    def store(self, hdfs_url):
        return open_store(hdfs_url)


@pytest.mark.prove
class TestCheckpointsOnHdfs(CheckpointStoreContract):
    @pytest.fixture
    def blobs(self, hdfs_url):
        return open_store(hdfs_url)


def test_checkpoints_are_found_by_url_and_by_name(hdfs_url):
    job = below(hdfs_url, "job-1")
    blobs = open_store(job)
    store = CheckpointStore(blobs)
    for number in (1, 2):
        take(store, blobs, number, own("a"), shared("s"))
    found = open_checkpoint(below(job, "chk-1"))
    check_files(found)
    assert (found.location, found.path) == ((job, "chk-1"), f"{job}/chk-1")
    assert find_latest(open_store(hdfs_url), job_name="job").location.name == "chk-2"


def test_a_name_node_that_does_not_answer_is_a_storage_error():
    pytest.importorskip("hdfs_native")
    store = open_store("hdfs://127.0.0.1:1/dir?dfs.client.failover.max.attempts=1")
    with pytest.raises(StorageError, match="/dir/a: Connection refused"):
        store.read("a")


def test_a_user_without_the_right_may_not_write(hdfs_server):
    program = (
        "import sys\n"
        "from tidegate.storage.filesystem import open_store\n"
        f"open_store({hdfs_server!r} + '/not-yours').put('a', b'x')\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"HADOOP_USER_NAME": "nobody"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "StorageError" in process.stderr
    assert "let the user who runs the driver and the slots write there" in process.stderr
