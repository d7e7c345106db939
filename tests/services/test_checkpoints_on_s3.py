import pytest

from tests.checkpoint_store_contract import CheckpointStoreContract, own, shared, take
from tidegate.checkpoint.locate import candidates, check_files, find_latest, open_checkpoint
from tidegate.checkpoint.store import CheckpointStore
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below

pytestmark = pytest.mark.slow


class TestOnS3(CheckpointStoreContract):
    @pytest.fixture
    def blobs(self, s3_url):
        return open_store(s3_url)


def test_checkpoints_are_found_by_url_and_by_name(s3_url):
    job = below(s3_url, "job-1")
    blobs = open_store(job)
    store = CheckpointStore(blobs)
    for number in (1, 2):
        take(store, blobs, number, own("a"), shared("s"))
    assert candidates(job) == [below(job, "chk-2"), below(job, "chk-1")]
    found = open_checkpoint(below(job, "chk-1"))
    check_files(found)
    assert found.location == (job, "chk-1")
    assert open_checkpoint(job).location.name == "chk-2"
    latest = find_latest(open_store(s3_url), job_name="job")
    assert latest.location == (job, "chk-2")
    store, path = latest.location.resolver()(shared("s"))
    assert store.read(path) == b"x"
