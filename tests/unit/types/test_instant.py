import pickle

import pytest

from tidegate.types.instant import Instant


@pytest.mark.parametrize("millis", [0, 1, 999, 1_000, 1_700_000_000_123, -1, -999, -1_001])
def test_milliseconds_survive_the_way_there_and_back(millis):
    assert Instant.of_epoch_milli(millis).to_epoch_milli() == millis


def test_an_instant_shows_seconds_and_nanoseconds():
    assert repr(Instant.of_epoch_milli(1_500)) == "Instant<1, 500000000>"


def test_instants_compare_by_value_and_pickle():
    assert Instant(1, 2) == Instant(1, 2) != Instant(1, 3)
    assert pickle.loads(pickle.dumps(Instant(1, 2))) == Instant(1, 2)
