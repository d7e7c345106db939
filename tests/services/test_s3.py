import pytest

from tests.blob_store_contract import BlobStoreContract
from tidegate.core.errors import StorageError
from tidegate.storage.filesystem import open_store

pytestmark = pytest.mark.slow


class TestS3Store(BlobStoreContract):
    @pytest.fixture
    def store(self, s3_url):
        return open_store(s3_url)


def test_a_reader_may_not_write(s3_server, s3_url):
    store = open_store(s3_url.replace("tidegate:tidegate-secret", "reader:reader-secret"))
    for write in (store.put, store.create_if_absent):
        with pytest.raises(StorageError, match="let the user who runs the driver") as caught:
            write("chk-1/_metadata", b"x")
        assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer_is_a_storage_error(s3_server):
    url = s3_server.url("tests/x").replace(f":{s3_server.port}", ":1")
    with pytest.raises(StorageError, match="check whether the storage can be reached"):
        open_store(url).create_if_absent("a", b"x")
    with pytest.raises(StorageError, match="s3://tests/x/a"):
        open_store(url).read("a")
