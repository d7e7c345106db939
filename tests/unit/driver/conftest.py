import pytest

from tests.disks import disk
from tests.jobs import Job, Watch, pairs, summed
from tests.programs import apply, graph_of, read
from tests.taps import Tap
from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.sink import FileSink
from tidegate.operators.endpoints.operators import SinkOperator

__all__ = ["RECORDS", "begun", "disk", "start", "watch", "writing"]
RECORDS = pairs(60)


@pytest.fixture
def start():
    """Starts jobs on clusters of their own; those that still run at the end are cancelled."""
    jobs = []

    def create(*sinks, settings=None, cluster=None, parallelism=2, **graph):
        jobs.append(Job(graph_of(*sinks, parallelism=parallelism, **graph), settings, cluster))
        return jobs[-1]

    yield create
    for job in jobs:
        job.cancel()


@pytest.fixture
def begun(start, watch):
    """Starts jobs that sum the records of a tap, and have read the first ones."""

    def create(records=20, tap=None, **more):
        tap = tap or Tap(RECORDS)
        job = start(summed(watch, read(tap)), **more)
        tap.let_pass(records)
        return job, tap

    return create


@pytest.fixture
def writing(start, watch, settings, tmp_path):
    """Starts jobs that sum records, and write them to files as well."""

    def create(tap, **more):
        source = read(tap, uid="source")
        sink = SinkOperator(FileSink(str(tmp_path / "out"), Encoder()))
        files = apply(sink, source, name="files", uid="files", is_sink=True)
        return start(summed(watch, source), files, settings={**settings, **more}, parallelism=1)

    return create


def committed(tmp_path):
    """What is visible in these files."""
    files = [path for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")]
    return sorted(line for path in files for line in path.read_text().splitlines())


def lines(records):
    return sorted(map(str, records))


@pytest.fixture
def watch():
    return Watch()
