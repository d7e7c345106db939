import pytest

from tidegate.core.errors import BlobNotFound, StorageError
from tidegate.storage.failures import storage_error, storage_errors


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (
            "AWS Error NO_SUCH_BUCKET during PutObject: The specified bucket does not exist",
            "create the bucket",
        ),
        ("An error occurred (NoSuchBucket) when calling PutObject", "create the bucket"),
        ("An error occurred (AccessDenied) when calling PutObject", "let the user who runs"),
        ("AWS Error ACCESS_DENIED during PutObject operation", "let the user who runs"),
        ("curlCode: 7, Couldn't connect to server", "can be reached from this machine"),
    ],
)
def test_what_a_remote_storage_says_gets_its_advice(text, advice):
    error = storage_error("s3://bucket/x", OSError(text))
    assert text in str(error)
    assert advice in str(error)


def raise_as_storage_error(error):
    with storage_errors("/data/chk-1/x"):
        raise error


def test_a_missing_file_is_a_missing_blob():
    with pytest.raises(BlobNotFound, match="/data/chk-1/x: there is no such file"):
        raise_as_storage_error(FileNotFoundError())


def test_errors_of_others_pass():
    with pytest.raises(ZeroDivisionError):
        raise_as_storage_error(ZeroDivisionError())


def test_storage_errors_keep_their_own_words():
    with pytest.raises(StorageError, match=r"^a: b; c$"):
        raise_as_storage_error(StorageError("a", "b", "c"))
