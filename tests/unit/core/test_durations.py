from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.durations import (
    Duration,
    Time,
    TimeUnit,
    as_milliseconds,
    as_timedelta,
    format_duration,
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (timedelta(seconds=5), timedelta(seconds=5)),
        (Duration.of_minutes(2), timedelta(minutes=2)),
        (Time.seconds(3), timedelta(seconds=3)),
        (1500, timedelta(milliseconds=1500)),
        (0.5, timedelta(microseconds=500)),
        ("1500", timedelta(milliseconds=1500)),
        ("5 s", timedelta(seconds=5)),
        ("10s", timedelta(seconds=10)),
        ("5 min", timedelta(minutes=5)),
        ("5 MINUTES", timedelta(minutes=5)),
        ("1 h", timedelta(hours=1)),
        ("2 days", timedelta(days=2)),
        ("250 µs", timedelta(microseconds=250)),
        ("2000 ns", timedelta(microseconds=2)),
        ("1.5 s", timedelta(milliseconds=1500)),
        ("PT1H30M", timedelta(minutes=90)),
        ("P2DT3S", timedelta(days=2, seconds=3)),
    ],
)
def test_a_duration_may_be_written_in_many_ways(written, meant):
    assert as_timedelta(written) == meant


@pytest.mark.parametrize("written", ["", "s", "5 parsecs", "P", "PT", "5 s 3 ms"])
def test_text_that_is_no_duration_is_answered_with_examples(written):
    with pytest.raises(ValueError, match=r"like '500 ms', '10s', '5 min'"):
        as_timedelta(written)


@pytest.mark.parametrize("value", [True, None, [5]])
def test_what_is_no_length_of_time_is_refused(value):
    with pytest.raises(ValueError, match="a number of milliseconds"):
        as_timedelta(value)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_a_formatted_duration_reads_back_as_itself(duration):
    assert as_timedelta(format_duration(duration)) == duration


def test_a_duration_is_a_timedelta_and_a_time_prints_its_milliseconds():
    assert Duration.of_seconds(1) == timedelta(seconds=1)
    assert Duration.of_nanos(3_000) == timedelta(microseconds=3)
    assert str(Time.minutes(1)) == "60000 ms"
    assert Time.hours(24) == Time.days(1)
    assert as_milliseconds("1 min") == 60_000


def test_a_time_of_a_number_and_a_unit():
    assert Time.of(5, TimeUnit.SECONDS) == Time.seconds(5)
    assert Time.of(3, TimeUnit.DAYS) == Time.days(3)
    assert Time.of(2_000, TimeUnit.MICROSECONDS) == Time.milliseconds(2)
