from collections import Counter

import pytest

from benchmarks.peers.rule import (
    LARGEST_RECORD,
    MULTIPLIER,
    check_size,
    expected_checksum,
    key_cycle,
    key_of,
    map_checksum,
    mapped,
    running_sum_checksum,
    timeline,
)
from benchmarks.peers.tidegate_window_program import TimedRecords


@pytest.mark.parametrize(("records", "keys"), [(0, 7), (5, 7), (7, 7), (100, 7), (2_345, 1_000)])
def test_the_checksum_is_the_sum_of_all_running_totals(records: int, keys: int) -> None:
    totals: Counter[str] = Counter()
    emitted = 0
    for record in range(records):
        totals[key_of(record, keys)] += 1
        emitted += totals[key_of(record, keys)]
    assert running_sum_checksum(records, keys) == emitted
    assert sum(t * (t + 1) // 2 for t in totals.values()) == emitted


def test_a_round_of_records_touches_every_key_once_and_then_repeats() -> None:
    cycle = key_cycle(1_000)
    assert sorted(cycle) == sorted(f"k{number}" for number in range(1_000))
    assert [key_of(record, 1_000) for record in range(1_000, 2_000)] == cycle


def test_the_map_is_checked_by_its_own_sum() -> None:
    assert map_checksum(10) == sum(mapped(1) for _ in range(10))
    assert expected_checksum("map", 10, 1_000) == map_checksum(10)
    assert expected_checksum("sum", 10, 1_000) == running_sum_checksum(10, 1_000)


def test_a_number_of_keys_that_breaks_the_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="share a factor"):
        check_size(1, MULTIPLIER * 2)


def test_a_number_of_records_past_64_bits_is_refused() -> None:
    assert LARGEST_RECORD * MULTIPLIER < 2**63
    with pytest.raises(ValueError, match="overflow 64 bits"):
        check_size(LARGEST_RECORD + 1, 1_000)


@pytest.mark.parametrize("workload", ["tumbling", "session", "interval-join"])
@pytest.mark.parametrize("readers", [1, 2])
def test_times_are_the_same_in_every_way_to_compute_them(workload: str, readers: int) -> None:
    records = 4_000_000
    times = timeline(workload, records, readers)
    for start in (0, 1_234_567, 2_000_000, 3_999_000):
        made = TimedRecords(1_000, times)(start, 1_000)
        assert made.column(2).to_pylist() == [times.time_of(start + n) for n in range(1_000)]
        assert made.column(0)[0].as_py() == key_of(start, 1_000)


def test_a_session_ends_after_every_million_records() -> None:
    times = timeline("session", 0)
    assert times.time_of(999_999) - times.time_of(0) == 999
    assert times.time_of(1_000_000) - times.time_of(999_999) == 10_001


def test_every_record_is_in_a_hundred_sliding_windows() -> None:
    assert expected_checksum("sliding", 7, 1_000) == 700
    assert expected_checksum("tumbling", 7, 1_000) == 7
