import sys

import pytest

from tests.blob_store_contract import BlobStoreContract
from tidegate.core.errors import StorageError
from tidegate.storage.arrow_store import ArrowStore
from tidegate.storage.filesystem import open_store
from tidegate.storage.local import LocalStore
from tidegate.storage.locations import below, parent_and_name, shown

fsspec = pytest.importorskip("fsspec")


class TestStoreOfAnotherSchemeThroughFsspec(BlobStoreContract):
    @pytest.fixture
    def store(self):
        store = open_store("memory://tidegate-tests/checkpoints")
        yield store
        store.delete("")

    def test_of_many_that_create_a_blob_at_once_one_wins_and_its_content_stays(self, store):
        pytest.skip("fsspec's memory file system has no atomic creation")


def test_a_path_and_a_file_url_are_the_local_disk(tmp_path):
    for url in (str(tmp_path), f"file://{tmp_path}"):
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.url == str(tmp_path)


def test_a_store_is_opened_again_by_its_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("checkpoints")
    store.put("a", b"x")
    monkeypatch.chdir("/")
    assert open_store(store.url).read("a") == b"x"


def test_other_schemes_come_from_fsspec():
    assert isinstance(open_store("memory://tidegate-tests/x"), ArrowStore)


def test_an_unknown_scheme_is_named():
    with pytest.raises(StorageError, match="gopher://x/y: no file system for it"):
        open_store("gopher://x/y")


@pytest.mark.parametrize(
    ("url", "module", "advice"),
    [
        ("hdfs://namenode:8020/dir", "hdfs_native", r"pip install 'tidegate\[hdfs\]'"),
        ("s3://bucket/dir", "boto3", r"pip install 'tidegate\[s3\]'"),
        ("memory://bucket/dir", "fsspec.core", "install fsspec and its package"),
    ],
)
def test_a_storage_says_what_it_needs(url, module, advice, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StorageError, match=f"{url}: .*{advice}"):
        open_store(url)


@pytest.mark.parametrize(
    ("root", "name", "path"),
    [
        ("/data/job", "chk-1", "/data/job/chk-1"),
        ("s3://bucket/job", "chk-1", "s3://bucket/job/chk-1"),
        (
            "s3://bucket/job?scheme=http&region=x",
            "a b",
            "s3://bucket/job/a%20b?scheme=http&region=x",
        ),
    ],
)
def test_a_name_is_put_below_a_root_and_taken_off_again(root, name, path):
    assert below(root, name) == path
    assert parent_and_name(path) == (root, name)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3://key:secret@bucket/dir?region=x", "s3://bucket/dir?region=x"),
        ("s3://bucket/dir", "s3://bucket/dir"),
        ("/local/dir@home", "/local/dir@home"),
        ("abfs://container@account.net/dir", "abfs://container@account.net/dir"),
    ],
)
def test_credentials_are_not_shown(url, text):
    assert shown(url) == text
