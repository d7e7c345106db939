from dataclasses import replace

import pytest

from benchmarks.peers.protocol import Meter, Order, Pace, spread_measures, steady_window

ORDER = Order(
    workload="sum",
    keys=100,
    records=1_000,
    seconds=10.0,
    warm_seconds=2.0,
    warm_limit=20.0,
    parallelism=2,
    commit_seconds=1.0,
    batch_records=10,
    rate=10_000,
    scratch="",
)


class ManualClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_warm_up_and_tail_do_not_count() -> None:
    slow_start = [(0.0, 0), (1.0, 10), (2.0, 50)]
    steady = [(3.0 + second, 100 * (second + 1)) for second in range(9)]
    dry_tail = [(30.0, 1_000)]
    window = steady_window(slow_start + steady + dry_tail, order=ORDER, total=1_000, bounded=True)
    assert (window.start, window.end, window.steady) == (3.0, 11.0, True)
    assert window.rate == 100


def test_the_window_waits_until_every_key_has_been_seen() -> None:
    samples = [(float(second), 10 * second) for second in range(30)]
    window = steady_window(samples, order=ORDER, total=290, bounded=False)
    assert window.start == 10.0


def test_the_window_waits_for_the_keys_no_longer_than_the_limit() -> None:
    order = replace(ORDER, keys=1_000_000, warm_limit=5.0)
    samples = [(float(second), 10 * second) for second in range(30)]
    window = steady_window(samples, order=order, total=290, bounded=False)
    assert window.start == 6.0  # the first record was seen at 1.0


def test_a_run_too_short_for_a_window_gives_its_second_half_and_says_so() -> None:
    window = steady_window(
        [(0.0, 0), (0.5, 500), (1.0, 1_000)], order=ORDER, total=1_000, bounded=True
    )
    assert not window.steady
    assert window.rate == 1_000


def test_a_single_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        steady_window([(0.0, 0)], order=ORDER, total=0, bounded=True)


def test_a_peer_that_can_stop_runs_the_window_after_the_warm_up() -> None:
    clock = ManualClock()
    pace = Pace(ORDER, clock)
    stops = []
    for second in range(40):
        clock.now = float(second)
        stops.append(pace.enough(20 * second))
    assert stops.index(True) == 5 + 10  # all keys have been seen after 5 s


def test_a_meter_keeps_one_sample_per_interval() -> None:
    clock = ManualClock()
    meter = Meter(interval=1.0, clock=clock)
    for tick in range(30):
        clock.now = tick / 10
        meter.mark(tick)
    assert meter.samples == [(0.0, 0), (1.0, 10), (2.0, 20)]


def test_spread_is_told_in_milliseconds() -> None:
    spread = spread_measures("step", [number / 1000 for number in range(100)])
    assert spread["step_p50_ms"] == pytest.approx(50)
    assert spread["step_p99_ms"] == pytest.approx(99)
    assert spread["step_max_ms"] == pytest.approx(99)


def test_a_duration_that_ends_before_it_began_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot end before it began"):
        spread_measures("latency", [0.2, -0.001, 0.3])
