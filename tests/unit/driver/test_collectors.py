from tests.programs import collected, graph_of, read, settings_of, wait_until
from tests.taps import Tap
from tidegate.driver import collectors
from tidegate.testing.mini_cluster import run

SETTINGS = {"tidegate.console.live-line": "off", "tidegate.step.max-records": 10}


def test_steps_wait_until_somebody_reads_what_they_have_delivered(monkeypatch):
    monkeypatch.setattr(collectors, "_ROOM", 1)
    refusals = []
    has_room = collectors.Collectors.has_room

    def watched(self):
        answer = has_room(self)
        refusals.extend([] if answer else [True])
        return answer

    monkeypatch.setattr(collectors.Collectors, "has_room", watched)
    tap = Tap(range(1000), is_open=True)
    handle = run(graph_of(collected(read(tap))), settings_of(SETTINGS))
    wait_until(lambda: len(refusals) >= 3)
    assert tap.reached() == 10, "one step, and none behind it"
    assert list(handle.collected("results", None)) == list(range(1000))
    handle.result()
