"""What a page watches: a job now, its charts, and a stream of changes."""

import asyncio
import http.client
import json
import time
from itertools import islice
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from tests.jobs import on_disk
from tests.programs import wait_until
from tests.served_jobs import TOKEN
from tidegate.core.rest_settings import RestSettings
from tidegate.web import hub
from tidegate.web.application import Application
from tidegate.web.live.history import COARSE, FINE, JobHistory, Ring
from tidegate.web.operations import Operations
from tidegate.web.served_jobs import ServedJobs


class Stream:
    """Reads server-sent events."""

    def __init__(self, served, path, **headers):
        address = urlsplit(served.server.url)
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        headers = {"authorization": f"Bearer {TOKEN}", **headers}
        self.connection.request("GET", path, headers=headers)
        self.response = self.connection.getresponse()

    def events(self):
        found = {}
        while line := self.response.readline().decode().rstrip("\n") or "-":
            if line == "-" and "event" in found:
                yield found["event"], int(found["id"]), json.loads(found["data"])
                found = {}
            elif ": " in line:
                key, _, value = line.partition(": ")
                found[key] = value

    def first(self, kind):
        return next(event for event in self.events() if event[0] == kind)

    def close(self):
        self.connection.close()


def test_a_job_is_seen_as_it_is_now(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints"))
    served.let(59)
    wait_until(lambda: served.job.progress().records_out == 59)
    wait_until(lambda: served.job.checkpoints.latest_completed)
    live = {}

    def seen():
        nonlocal live
        live = served.ask(f"/tidegate{served.path}/live").document
        is_measured = all(vertex["busy"] is not None for vertex in live["vertices"])
        return live["records-out"] == 59 and live["state-size"] is not None and is_measured

    wait_until(seen)
    source, sums = live["vertices"]
    (edge,) = live["edges"]
    assert (edge["source"], edge["target"]) == (source["id"], sums["id"])
    assert (edge["records"], edge["ship-strategy"]) == (59, "HASH")
    assert edge["bytes"] > 59
    assert sums["busy"] + sums["back-pressured"] + sums["idle"] == pytest.approx(1)
    assert live["checkpoints"]["last"]["size"] == live["state-size"]
    assert live["state-size"] == source["state-size"] + sums["state-size"]
    assert [each["guarantee"] for each in live["guarantees"]]
    metrics = served.of_job().document["vertices"][1]["metrics"]
    assert metrics["accumulated-idle-time"] > 0


def test_a_stream_brings_the_jobs_the_job_and_its_points(served):
    stream = Stream(served, f"/tidegate/events?job={served.id}")
    assert stream.response.getheader("content-type").startswith("text/event-stream")
    seen = {}
    for kind, _, data in islice(stream.events(), 12):
        seen.setdefault(kind, []).append(data)
    stream.close()
    assert seen["jobs"][0]["jobs"][0]["jid"] == served.id
    assert seen["job"][-1]["state"] == "RUNNING"
    times = [at for points in seen["points"] for at in points["times"]]
    assert times == sorted(set(times))
    assert "records-in-per-second" in seen["points"][-1]["job"]


def test_no_two_samples_have_the_same_time(served, monkeypatch):
    stands_still = SimpleNamespace(time=lambda: 1000.0, monotonic=time.monotonic)
    monkeypatch.setattr(hub, "time", stands_still)
    watched = hub.Watched(served.job)
    for _ in range(3):
        watched.look(Operations())
    assert watched.history.rings[FINE].since(0.0).times == [1000.0, 1000.001, 1000.002]


def test_a_page_that_comes_back_gets_the_points_that_it_missed(served):
    stream = Stream(served, f"/tidegate/events?job={served.id}")
    _, last, first = stream.first("points")
    stream.close()
    history = f"/tidegate{served.path}/history?since={last}"
    wait_until(lambda: len(served.ask(history).document["times"]) >= 2)
    back = Stream(served, f"/tidegate/events?job={served.id}", **{"last-event-id": str(last)})
    _, _, missed = back.first("points")
    back.close()
    assert len(missed["times"]) >= 2
    assert first["times"][-1] < missed["times"][0]


def test_a_slow_page_gets_only_the_latest():
    async def watch():
        jobs = ServedJobs()
        hub = Application(jobs, Operations(), RestSettings(), "token").hub
        frames = await hub.stream(None, None)
        assert await anext(frames) == b"retry: 1000\n\n"
        (page,) = hub._pages
        for number in range(1000):
            page.put("job", b"%d" % number)
        assert len(page.waiting) == 1
        assert (await anext(frames)).startswith(b"999id")
        await frames.aclose()
        assert not hub._pages

    asyncio.run(watch())


def test_an_update_is_built_once_for_all_pages(served, monkeypatch):
    from tidegate.web import hub as hubs

    built = []
    build = hubs._frame

    def noted(kind, content, at):
        built.append((kind, at))
        return build(kind, content, at)

    monkeypatch.setattr(hubs, "_frame", noted)
    streams = [Stream(served, f"/tidegate/events?job={served.id}") for _ in range(50)]
    ids = [stream.first("job")[1] for stream in streams]
    later = [next(e for e in s.events() if e[0] == "job" and e[1] > max(ids))[1] for s in streams]
    for stream in streams:
        stream.close()
    for at in set(later):
        assert sum(kind == "job" and round(1000 * when) == at for kind, when in built) == 1


def test_the_stream_of_an_unknown_job_is_refused(served):
    assert served.ask(f"/tidegate/events?job={'0' * 32}").status == 404
    assert served.ask("/tidegate/events?job=nonsense").status == 400


def test_a_ring_keeps_the_last_values_and_none_where_there_was_none():
    ring = Ring(1, 3)
    for number in range(5):
        ring.add(number, {("", "a"): number, **({("v", "b"): 1.0} if number == 3 else {})})
    points = ring.since(2.5)
    assert points.times == [3, 4]
    assert points.series == {("", "a"): [3, 4], ("v", "b"): [1.0, None]}
    assert ring.since(-1).times == [2, 3, 4]


def test_hours_are_kept_as_means():
    history = JobHistory()
    for second in range(31):
        history.add(second, {("", "a"): second})
    points = history.rings[COARSE].since(-1)
    assert points.times == [15, 30]
    assert points.series["", "a"] == [7.5, 23]
    assert len(history.rings[FINE].since(-1).times) == 31
