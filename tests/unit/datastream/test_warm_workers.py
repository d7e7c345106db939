"""Which executors get a task that starts their Python."""

from tidegate.datastream.execution.warm_workers import newcomers


class Executors:
    def __init__(self, **hosts):
        self.hosts = hosts
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return {"driver": "here", **self.hosts}


def test_every_executor_is_new_once():
    executors, known = Executors(**{"0": "a", "1": "b"}), set()
    assert newcomers(executors, ["0"], known) == {"0": "a"}
    assert newcomers(executors, ["0", "1"], known) == {"1": "b"}
    assert newcomers(executors, ["0", "1"], known) == {}
    assert executors.asked == 2


def test_a_replacement_is_new_too():
    known = {"0", "1"}
    assert newcomers(Executors(**{"0": "a", "2": "b"}), ["0", "2"], known) == {"2": "b"}
    assert known == {"0", "2"}


def test_an_executor_whose_host_is_not_known_yet_is_asked_for_again():
    known = set()
    assert newcomers(Executors(), ["0"], known) == {}
    assert newcomers(Executors(**{"0": "a"}), ["0"], known) == {"0": "a"}
