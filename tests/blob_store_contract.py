"""What every store of blobs must do; a test class gives the store as a fixture."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tidegate.core.errors import BlobNotFound, StorageError


class BlobStoreContract:
    """Inherit, and define a fixture `store` that is empty."""

    def test_what_was_put_is_read_as_a_whole_and_in_parts(self, store):
        store.put("chk-1/state", b"0123456789")
        assert store.read("chk-1/state") == b"0123456789"
        assert store.read("chk-1/state", 3) == b"3456789"
        assert store.read("chk-1/state", 3, 4) == b"3456"
        assert store.read("chk-1/state", 8, 4) == b"89"
        assert store.read("chk-1/state", 12, 4) == b""
        assert store.size("chk-1/state") == 10

    def test_a_put_takes_the_place_of_what_was_there(self, store):
        store.put("a", b"a longer first content")
        store.put("a", b"second")
        assert store.read("a") == b"second"
        assert list(store.list()) == ["a"]

    def test_an_empty_blob_is_a_blob(self, store):
        store.put("empty", b"")
        assert store.read("empty") == b""
        assert store.size("empty") == 0
        assert store.exists("empty")

    def test_a_blob_is_written_piece_by_piece(self, store):
        pieces = [bytes([number]) * 300_000 for number in range(20)]
        with store.writer("deep/below/big") as blob:
            for piece in pieces:
                blob.write(piece)
        assert store.read("deep/below/big") == b"".join(pieces)
        assert store.read("deep/below/big", 299_999, 2) == b"\0\1"

    def test_a_blob_whose_writer_fails_is_not_there(self, store):
        def fail():
            with store.writer("half") as blob:
                blob.write(b"some")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert not store.exists("half")
        assert list(store.list()) == []

    def test_only_the_first_creation_of_a_blob_succeeds(self, store):
        assert store.create_if_absent("dir/once", b"first") is True
        assert store.create_if_absent("dir/once", b"second") is False
        assert store.read("dir/once") == b"first"
        assert list(store.list()) == ["dir/once"]

    def test_of_many_that_create_a_blob_at_once_one_wins_and_its_content_stays(self, store):
        contents = [b"%d" % number * 1000 for number in range(8)]
        with ThreadPoolExecutor(8) as threads:
            won = list(
                threads.map(lambda data: store.create_if_absent("contested", data), contents)
            )
        assert sum(won) == 1
        assert store.read("contested") == contents[won.index(True)]
        assert list(store.list()) == ["contested"]

    def test_what_was_deleted_can_be_created_again(self, store):
        store.create_if_absent("a", b"1")
        store.delete("a")
        assert store.create_if_absent("a", b"2") is True
        assert store.read("a") == b"2"

    def test_a_missing_blob_is_named(self, store):
        for access in (store.read, store.size):
            with pytest.raises(BlobNotFound, match="chk-9/_metadata: there is no such file"):
                access("chk-9/_metadata")
        assert not store.exists("chk-9/_metadata")

    def test_a_directory_is_no_blob(self, store):
        store.put("chk-1/a", b"")
        assert not store.exists("chk-1")
        with pytest.raises(StorageError):
            store.read("chk-1")
        with pytest.raises(BlobNotFound):
            store.size("chk-1")

    def test_blobs_are_listed_below_a_path_however_deep(self, store):
        for path in ("chk-1/a", "chk-1/b/c", "chk-10/a", "top"):
            store.put(path, b"")
        assert sorted(store.list()) == ["chk-1/a", "chk-1/b/c", "chk-10/a", "top"]
        assert sorted(store.list("chk-1")) == ["chk-1/a", "chk-1/b/c"]
        assert list(store.list("chk-2")) == []
        assert list(store.list("top/below")) == []

    def test_a_blob_or_everything_below_a_path_is_deleted_and_nothing_else(self, store):
        for path in ("chk-1/a", "chk-1/b/c", "chk-10/a", "top"):
            store.put(path, b"")
        store.delete("chk-1")
        store.delete("top")
        store.delete("never-there")
        assert list(store.list()) == ["chk-10/a"]

    def test_a_store_can_be_deleted_as_a_whole(self, store):
        store.put("chk-1/a", b"")
        store.delete("")
        assert list(store.list()) == []

    @pytest.mark.parametrize("path", ["../other", "/etc/passwd", "a/../../b"])
    def test_a_path_that_leads_out_is_refused(self, store, path):
        with pytest.raises(StorageError, match="leads out of this directory"):
            store.read(path)
        with pytest.raises(StorageError, match="leads out of this directory"):
            store.put(path, b"")
