"""If a file of a job's directory is damaged, the resuming job names it, or is not affected.

The job reads through a durable log and has two checkpoints. A file of any kind is changed in one
bit, truncated, removed, or replaced by an older one of its kind; then the job resumes from its
latest checkpoint and runs to its end.
"""

import logging
import re
import shutil

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.effort import examples
from tests.jobs import Job, Watch, on_disk, pairs, summed, take_checkpoint, totals
from tests.programs import graph_of, read, wait_until
from tests.taps import Tap
from tidegate.core.errors import TidegateError
from tidegate.testing.mini_cluster import MiniCluster

RECORDS = pairs(60)
VARIANTS = {"hashmap": ("hashmap", 0), "rocksdb": ("rocksdb", 0), "inline": ("hashmap", 20_000)}
"""The backend, and how much state is stored in `_metadata` itself."""


class Abandoned:
    """A job that has stopped after 52 records, with checkpoints after 20 and 40."""

    def __init__(self, directory, backend, inline):
        self.directory = directory
        self.settings = {
            "execution.checkpointing.data-inline-threshold": inline,
            "execution.checkpointing.incremental": True,
            "execution.checkpointing.num-retained": 2,
            "restart-strategy": "none",
            "state.backend.type": backend,
        }
        self.tap = Tap(RECORDS)
        job = self.start(directory)
        for records in (20, 40, 44, 48, 52):
            self.tap.let(records)
            wait_until(lambda count=records: self.watch.count("sums", "map") == count)
            if records <= 40:
                take_checkpoint(job, self.watch, "sums")
        wait_until(lambda: len(list(directory.glob("*/chk-*/_metadata"))) == 2)
        job.cancel()
        job.cluster.close()
        self.files = {}
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.files.setdefault(kind_of(path), []).append(path.relative_to(directory))

    def start(self, directory, **more):
        self.watch = Watch()
        graph = graph_of(
            summed(self.watch, read(self.tap.durable(), uid="numbers", name="numbers")),
            parallelism=1,
            name="abandoned",
        )
        settings = on_disk(directory, **{**self.settings, **more})
        return Job(graph, settings, MiniCluster())

    def resumed(self, directory):
        """The final sums, and whether the job resumed from its latest checkpoint."""
        self.tap.open()
        job = self.start(directory, **{"execution.state-recovery.path": "latest"})
        try:
            job.result()
            return dict(job.records()), self.watch.values("sums", "map") == RECORDS[40:]
        finally:
            job.cluster.close()


def kind_of(path):
    if path.parent.name == "log":
        return "log"
    if path.parent.name == "shared":
        return "shared"
    if path.parent.name.startswith("chk-"):
        return "metadata" if path.name == "_metadata" else "state"
    return re.sub(r"[-\d]+$", "", path.name)


@pytest.fixture(scope="module", params=VARIANTS)
def abandoned(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoints") / "jobs"
    return Abandoned(directory, *VARIANTS[request.param])


def is_harmless(abandoned, tmp_path, file, change):
    """Whether the job ends correctly, and names the damaged file if it uses an older checkpoint.

    A directory without `_metadata` is not a checkpoint: there is nothing to report.
    """
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(abandoned.directory, copy)
    change(copy / file)
    is_gone = not (copy / file).exists()
    said = Said()
    try:
        found, from_latest = abandoned.resumed(copy)
    except TidegateError as error:
        return str(copy / file) in str(error)
    finally:
        said.end()
    is_said = from_latest or is_gone or str(copy / file) in said.text
    return is_said and found == totals(RECORDS)


class Said(logging.Handler):
    """What the job has logged."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.text = ""
        logging.getLogger("tidegate").addHandler(self)

    def emit(self, record):
        self.text += self.format(record)

    def end(self):
        logging.getLogger("tidegate").removeHandler(self)


KINDS = {"metadata", "log", "last-id", "owner", "closed"}
STATE = {"hashmap": {"state"}, "rocksdb": {"state", "shared"}, "inline": set()}
EXAMPLES = examples(4, suppress=[HealthCheck.function_scoped_fixture])


def some_file(data, abandoned):
    kind = data.draw(st.sampled_from(sorted(abandoned.files)))
    return data.draw(st.sampled_from(abandoned.files[kind]))


@EXAMPLES
@given(data=st.data())
def test_a_flipped_bit_does_no_harm(abandoned, tmp_path, data):
    file = some_file(data, abandoned)
    size = 8 * (abandoned.directory / file).stat().st_size
    if not size:
        return
    edge = min(size, 8 * 32)
    bit = data.draw(
        st.one_of(
            st.integers(0, edge - 1), st.integers(size - edge, size - 1), st.integers(0, size - 1)
        )
    )

    def flip(path):
        changed = bytearray(path.read_bytes())
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)

    assert is_harmless(abandoned, tmp_path, file, flip)


@EXAMPLES
@given(data=st.data())
def test_a_cut_does_no_harm(abandoned, tmp_path, data):
    file = some_file(data, abandoned)
    size = (abandoned.directory / file).stat().st_size
    length = data.draw(st.integers(0, max(0, size - 1)))
    assert is_harmless(
        abandoned, tmp_path, file, lambda path: path.write_bytes(path.read_bytes()[:length])
    )


@pytest.mark.slow
def test_a_file_that_is_gone_does_no_harm(abandoned, tmp_path):
    for files in abandoned.files.values():
        for file in files:
            assert is_harmless(abandoned, tmp_path, file, lambda path: path.unlink()), file


def test_an_older_file_in_its_place_does_no_harm(abandoned, tmp_path):
    for oldest, *others in abandoned.files.values():
        content = (abandoned.directory / oldest).read_bytes()
        for file in others:
            assert is_harmless(
                abandoned, tmp_path, file, lambda path, content=content: path.write_bytes(content)
            ), file


def test_all_kinds_of_files_are_there(abandoned, request):
    assert set(abandoned.files) == KINDS | STATE[request.node.callspec.params["abandoned"]]
    assert len(abandoned.files["metadata"]) == 2
    assert len(abandoned.files["log"]) > 3
