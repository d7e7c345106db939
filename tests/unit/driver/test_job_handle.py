from concurrent.futures import Future
from types import SimpleNamespace

from tests.programs import collected, graph_of, read
from tidegate.driver.collectors import Collectors
from tidegate.driver.job_handle import JobHandle


class Master:
    """One whose job ends as soon as it is started."""

    checkpoints = SimpleNamespace(successor=None)

    def __init__(self):
        self.result = Future()

    def start(self):
        self.result.set_result(None)

    def progress(self):
        return None


def test_a_job_that_ends_at_once_is_followed_before_it_starts():
    calls = []
    console = SimpleNamespace(
        follow=lambda name, progress: calls.append("follow"), close=lambda: calls.append("close")
    )
    graph = graph_of(collected(read([])), parallelism=1)
    job = JobHandle(graph, lambda graph, home: Master(), Collectors(), console)
    job.result(timeout=10)
    assert calls == ["follow", "close"]
