from typing import NamedTuple

import pytest

from tidegate.state.key_slots import ObjectKeys


class Place(NamedTuple):
    latitude: float
    name: str


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("nan"),
        lambda: (float("nan"), "a"),
        lambda: ((1, float("nan")), "a"),
        lambda: Place(float("nan"), "pole"),
    ],
)
def test_not_a_number_is_one_key_wherever_it_stands(make):
    slots = ObjectKeys()
    assert slots.find_or_add([make(), make()]) == [0, 0]
    assert slots.find_or_add([make(), "other"]) == [0, 1]
    assert type(slots.values()[0]) is type(make())
