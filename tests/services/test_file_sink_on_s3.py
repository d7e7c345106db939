"""Part files on an object store, where a rename is a copy and a deletion."""

import pytest
from pyarrow import fs

from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.sink import FileSink
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.storage.locations import below, resolve
from tidegate.testing.harness import OperatorHarness

pytestmark = pytest.mark.slow


def opened(url):
    return OperatorHarness(SinkOperator(FileSink(url, Encoder())))


def files_in(url):
    """The content of every object by its name."""
    file_system, inner = resolve(url)
    found = file_system.get_file_info(fs.FileSelector(inner, recursive=True, allow_not_found=True))
    return {
        info.base_name: file_system.open_input_file(info.path).read().decode()
        for info in found
        if info.is_file
    }


def finished(url):
    return sorted(text for name, text in files_in(url).items() if not name.startswith("."))


def hidden(url):
    return sorted(name for name in files_in(url) if name.startswith("."))


def test_an_object_gets_its_name_when_its_checkpoint_is_complete(s3_url):
    with opened(s3_url) as harness:
        harness.process(["a"])
        harness.snapshot()
        assert (len(hidden(s3_url)), finished(s3_url)) == (1, [])
        harness.complete_checkpoint()
        assert (hidden(s3_url), finished(s3_url)) == ([], ["a\n"])


def test_a_commit_that_stopped_after_the_copy_is_repeated_and_changes_nothing(s3_url):
    with opened(s3_url) as harness:
        harness.process(["a"])
        snapshot = harness.snapshot()
        harness.process(["lost"])
        harness.snapshot()
        (pending, _) = sorted(hidden(s3_url), key=lambda name: name.rpartition("-")[2])
        file_system, source = resolve(below(s3_url, pending))
        name = pending[1:].partition(".")[0]
        file_system.copy_file(source, resolve(below(s3_url, name))[1])
        with harness.restore(snapshot):
            assert (hidden(s3_url), finished(s3_url)) == ([], ["a\n"])
        with harness.restore(snapshot):
            assert (hidden(s3_url), finished(s3_url)) == ([], ["a\n"])
