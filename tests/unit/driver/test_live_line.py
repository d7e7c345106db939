import io
import logging
import threading

import pytest

from tests.programs import wait_until
from tidegate.core.modes import LiveLine
from tidegate.driver.checkpoints.restoring import RestoreProgress
from tidegate.driver.live_line import Console, describe
from tidegate.driver.progress import Progress


def progress(records=0, lag=None, **more):
    return Progress(
        records_in=records, records_out=records, lag=lag, steps=1, step_seconds=0.1, **more
    )


@pytest.fixture
def streams():
    return io.StringIO(), io.StringIO()


def test_lines_of_the_job_go_to_standard_output(streams):
    out, err = streams
    console = Console(LiveLine.AUTO, out, err)
    console.print("(a,1)")
    console.print("(b,2)")
    console.close()
    assert out.getvalue() == "(a,1)\n(b,2)\n"
    assert err.getvalue() == ""


def test_a_live_line_is_drawn_and_wiped_before_the_jobs_own_lines(streams, monkeypatch):
    monkeypatch.setattr("tidegate.driver.live_line._REDRAW_SECONDS", 0.01)
    out, err = streams
    console = Console(LiveLine.ON, out, err)
    console.follow("count", lambda: progress(10))
    wait_until(lambda: "count: " in err.getvalue())
    console.print("(a,1)")
    console.close()
    assert out.getvalue() == "(a,1)\n"
    assert err.getvalue().endswith("\r\x1b[K"), "nothing of it stays"


def test_a_live_line_is_wiped_before_a_log_line(streams, monkeypatch):
    monkeypatch.setattr("tidegate.driver.live_line._REDRAW_SECONDS", 0.01)
    out, err = streams
    before = logging.getLogRecordFactory()
    log = logging.getLogger("test of the live line")
    handler = logging.StreamHandler(err)
    log.addHandler(handler)
    looks, is_logged = [], threading.Event()

    def drawn_once():
        looks.append(1)
        if len(looks) > 2:
            is_logged.wait(120)
        return progress(10)

    console = Console(LiveLine.ON, out, err)
    console.follow("count", drawn_once)
    wait_until(lambda: "count: " in err.getvalue())
    log.warning("something happened")
    is_logged.set()
    console.close()
    log.removeHandler(handler)
    assert "\r\x1b[Ksomething happened\n" in err.getvalue()
    assert logging.getLogRecordFactory() is before


def test_without_a_terminal_nothing_is_drawn(streams):
    out, err = streams
    console = Console(LiveLine.AUTO, out, err)
    console.follow("count", progress)
    console.close()
    assert (out.getvalue(), err.getvalue()) == ("", "")


def test_a_console_that_is_off_starts_no_thread(streams):
    console = Console(LiveLine.OFF, *streams)
    before = threading.active_count()
    console.follow("count", progress)
    assert threading.active_count() == before
    console.close()


@pytest.mark.parametrize(
    ("encoding", "shown"), [("utf-8", "\\ud800 ä"), ("ascii", "\\ud800 \\xe4")]
)
def test_what_the_terminal_cannot_show_is_shown_as_an_escape(encoding, shown):
    raw = io.BytesIO()
    console = Console(LiveLine.OFF, io.TextIOWrapper(raw, encoding=encoding), io.StringIO())
    console.print("\ud800 ä")
    console.drain()
    assert raw.getvalue().decode(encoding) == f"{shown}\n"


def test_a_job_that_catches_up_says_how_long_it_will_be():
    line = describe(progress(0, lag=10_000), progress(2_000, lag=9_000), 0.5, 0.0)
    assert "4.00 k/s in" in line
    assert "9,000 behind, 0:00:04 left" in line


def test_what_is_read_again_counts_where_the_end_is_not_known():
    before, now = progress(0, records_to_repeat=30), progress(10, records_to_repeat=20)
    assert "20 behind, 0:00:01 left" in describe(before, now, 0.5, 0.0)
    assert "behind" not in describe(progress(0), progress(10), 0.5, 0.0)


def test_a_job_that_has_caught_up_or_falls_behind_has_no_end_in_sight():
    assert "· 0 behind ·" in describe(progress(0, lag=5), progress(9, lag=0), 0.5, 0.0)
    assert "· 7 behind ·" in describe(progress(0, lag=5), progress(9, lag=7), 0.5, 0.0)


def test_a_job_that_is_restored_says_how_much_of_it_is():
    restore = RestoreProgress(checkpoint_id=3, size=3 << 20, read=1 << 20, is_complete=False)
    line = describe(progress(), progress(restore=restore), 0.5, 0.0)
    assert line.startswith("restored 1.0 MB of 3.0 MB · 0/s in")


def test_a_job_that_waits_for_its_restart_shows_that_first():
    waiting = progress(10, restart="restart 2 of at most 3 in 4 s")
    assert describe(waiting, waiting, 1.0, 0.0).startswith("restart 2 of at most 3 in 4 s · ")
