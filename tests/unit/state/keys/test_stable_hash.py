import datetime as dt
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from uuid import UUID

import numpy as np
import pytest

from tidegate.core.errors import UnsupportedKey
from tidegate.state.keys.stable_hash import stable_hash
from tidegate.types.instant import Instant
from tidegate.types.row import Row

Point = namedtuple("Point", "x y")


class Color(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


@dataclass(frozen=True)
class Account:
    bank: str
    number: int


@dataclass
class Changing:
    number: int


@dataclass(frozen=True)
class HalfCompared:
    number: int
    note: str = field(compare=False)


# These numbers decide where stored state belongs: a change here loses the state of every user.
GOLDEN = {
    "": 0x2D06800538D394C2,
    "a": 0xE6C632B61E964E1F,
    "héllo": 0x6A45B79A7B549B1F,
    0: 0xE220A8397B1DCDAF,
    1: 0x910A2DEC89025CC1,
    -1: 0xE4D971771B652C20,
    2**63: 0xB70C84F7E03F3813,
    2**64: 0xF3BC3208AC44D14C,
    1.5: 0x6476402047B92F52,
    None: 0x5BD1E995A4093822,
    b"a": 0xD2F6D0996F37A720,
    ("a", 1): 0x54B4A12CDB17BCF3,
    dt.date(2020, 1, 1): 0x59F397529927AC23,
    dt.datetime(2020, 1, 1, 12): 0x43DF29FC75CFA263,  # noqa: DTZ001
    dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC): 0x8F8A358E96EBFBDA,
    dt.time(12, 30): 0x46DC04814BD03529,
    dt.timedelta(seconds=1): 0x24A956F4923934D8,
    Decimal("1.10"): 0x893C0C5F5FFB89EB,
    UUID(int=7): 0x36D5EE2A9F96558E,
    Color.RED: 0x921BE00CC689E4C2,
    Instant(1, 5): 0xBA3CAC2C834804E0,
}


@pytest.mark.parametrize("key", GOLDEN, ids=repr)
def test_hashes_stay_what_they_are_for_ever(key):
    assert stable_hash(key) == GOLDEN[key]


@pytest.mark.parametrize(
    "alike",
    [
        (1, 1.0, True, Decimal(1), np.int8(1), np.uint64(1), np.float32(1), Level.LOW, np.True_),
        (0, 0.0, -0.0, False, Decimal("-0.0")),
        (2**63, 2.0**63, np.uint64(2**63), Decimal(2**63)),
        (-(2**80), -(2.0**80), Decimal(-(2**80))),
        (0.5, Decimal("0.5"), np.float32(0.5)),
        (Decimal("1.1"), Decimal("1.10")),
        (float("inf"), Decimal("Infinity")),
        ((1, 2), Point(1, 2), (1.0, True + 1)),
        (Row(1, "a"), Row(1.0, "a")),
        (Row(a=1, b=2), Row(b=2, a=1)),
        ("text", np.str_("text")),
        (
            dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC),
            dt.datetime(2020, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        ),
    ],
    ids=str,
)
def test_keys_that_are_equal_in_a_dict_have_equal_hashes(alike):
    assert all(key == alike[0] for key in alike)
    assert len({stable_hash(key) for key in alike}) == 1


def test_all_nans_are_one_key():
    nans = (float("nan"), -float("nan"), np.float64("nan"), Decimal("NaN"))
    assert len({stable_hash(key) for key in nans}) == 1


def test_unequal_keys_of_different_types_do_not_fall_together():
    keys = ["1", 1, b"1", (1,), None, 1.5, dt.date(1970, 1, 2), dt.timedelta(microseconds=1)]
    assert len({stable_hash(key) for key in keys}) == len(keys)


def test_the_parts_of_a_key_have_an_order_and_a_number():
    keys = [(1, 2), (2, 1), (1, 2, None), ((1, 2),), ()]
    assert len({stable_hash(key) for key in keys}) == len(keys)


def test_a_list_is_hashed_as_a_tuple():
    assert stable_hash(["a", [1, 2]]) == stable_hash(("a", (1, 2)))


def test_a_frozen_dataclass_is_hashed_by_its_fields():
    assert stable_hash(Account("x", 1)) == stable_hash(Account("x", 1.0))
    assert stable_hash(Account("x", 1)) != stable_hash(Account("x", 2))


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ({"a": 1}, "a dict is mutable"),
        (bytearray(b"a"), "a bytearray is mutable"),
        (Changing(1), r"declare it @dataclass\(frozen=True\)"),
        (HalfCompared(1, "x"), "does not compare note"),
        (object(), "has no hash of object"),
        (1j, "has no hash of complex"),
        (("a", {1}), "a set is mutable"),
        (dt.time(1, tzinfo=dt.UTC), "time zone"),
    ],
)
def test_a_key_without_a_stable_hash_is_refused_with_what_to_do(key, reason):
    with pytest.raises(UnsupportedKey, match=f"{reason}.*Return a supported key"):
        stable_hash(key)


def test_another_process_with_another_hash_seed_agrees():
    code = (
        "from tidegate.state.keys.stable_hash import stable_hash; "
        "print(stable_hash(('a', 1, None)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{stable_hash(('a', 1, None))}\n"}
