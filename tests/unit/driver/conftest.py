import pytest

from tests.disks import disk
from tests.jobs import Job, Watch
from tests.programs import graph_of

__all__ = ["disk", "start", "watch"]


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
def watch():
    return Watch()
