"""The data: one rule for every peer, so that every peer's totals can be checked.

Record `i`, counted from zero, has the key `"k" + str(i * 2654435761 % keys)` and the value 1. The
multiplier is a prime, so `keys` records in a row touch every key exactly once, in a scattered
order. As all values are 1 the sum of all *emitted* running totals does not depend on the order in
which parallel sources are merged: a key seen `n` times emits 1, 2, ... n, whoever was first. The
value is a column of data all the same: no peer is told that it is a constant.
"""

from __future__ import annotations

import math

MULTIPLIER = 2_654_435_761
LARGEST_RECORD = (2**63 - 1) // MULTIPLIER
"""From here on `i * MULTIPLIER` no longer fits into the 64 bits of the SQL engines."""


def key_of(record: int, keys: int) -> str:
    """The key of one record; the definition that all faster ways must agree with."""
    return f"k{record * MULTIPLIER % keys}"


def key_cycle(keys: int) -> list[str]:
    """The keys of records 0 to `keys - 1`; the stream repeats this list for ever."""
    return [key_of(record, keys) for record in range(keys)]


def sql_key(record: str, keys: int) -> str:
    """The key as an expression that Spark's and Flink's SQL both understand."""
    return f"concat('k', cast(mod({record} * {MULTIPLIER}, {keys}) as string))"


def sql_value(record: str) -> str:
    """The value as an expression; it depends on the record so that no optimizer folds it."""
    return f"cast(case when {record} >= 0 then 1 else 0 end as bigint)"


def mapped(value: int) -> int:
    """What the map-only pipeline does to a value."""
    return value * 2 + 1


def running_sum_checksum(records: int, keys: int) -> int:
    """The sum of all running totals that `records` records emit.

    From final totals `t` of the keys it is the sum of `t * (t + 1) / 2`.
    """
    check_size(records, keys)
    rounds, rest = divmod(records, keys)
    return rest * _triangle(rounds + 1) + (keys - rest) * _triangle(rounds)


def map_checksum(records: int) -> int:
    """The sum of all values that the map-only pipeline emits."""
    return records * mapped(1)


def expected_checksum(workload: str, records: int, keys: int) -> int:
    """What a correct run of a workload adds up to."""
    return map_checksum(records) if workload == "map" else running_sum_checksum(records, keys)


def check_size(records: int, keys: int) -> None:
    """Refuse sizes for which the rule would not hold."""
    if math.gcd(MULTIPLIER, keys) != 1:
        raise ValueError(f"{keys} keys share a factor with {MULTIPLIER}; take another number")
    if records > LARGEST_RECORD:
        raise ValueError(f"{records} records overflow 64 bits; at most {LARGEST_RECORD}")


def _triangle(n: int) -> int:
    return n * (n + 1) // 2
