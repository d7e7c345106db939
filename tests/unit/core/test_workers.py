from tests.programs import wait_until
from tidegate.core.workers import Threads


def test_an_idle_worker_looks_again_when_it_said_so_and_after_each_action():
    looks = []

    def look():
        looks.append(len(looks))
        return 0.0 if len(looks) < 3 else 3600.0

    worker = Threads().start("test", look, lambda: 0.001)
    wait_until(lambda: len(looks) == 3)
    worker.post(lambda: None)
    wait_until(lambda: len(looks) == 4)
    assert worker.stop(20.0)
    assert len(looks) == 4
