import pytest

from tests.blob_store_contract import BlobStoreContract
from tests.checkpoint_store_contract import CheckpointStoreContract, own, shared, take
from tidegate.checkpoint.locate import check_files, find_latest, open_checkpoint
from tidegate.checkpoint.store import CheckpointStore
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below

pytestmark = pytest.mark.slow


class TestHdfsStore(BlobStoreContract):
    @pytest.fixture
    def store(self, hdfs_url):
        return open_store(hdfs_url)


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
    assert (found.directory, found.name, found.path) == (job, "chk-1", f"{job}/chk-1")
    assert find_latest(open_store(hdfs_url), job_name="job").name == "chk-2"
