"""The data: one rule for every peer, so that every peer's totals can be checked.

Record `i`, counted from zero, has the key `"k" + str(i * 2654435761 % keys)` and the value 1. The
multiplier is a prime, so `keys` records in a row touch every key exactly once, in a scattered
order. As all values are 1 the sum of all *emitted* running totals does not depend on the order in
which parallel sources are merged: a key seen `n` times emits 1, 2, ... n, whoever was first. The
value is a column of data all the same: no peer is told that it is a constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MULTIPLIER = 2_654_435_761
EPOCH = 1_700_000_000_000
"""When the first record happened."""
WINDOW, SLIDE, SESSION_GAP = 10_000, 100, 5_000
"""In milliseconds."""
DENSE, SPARSE = 1_000, 10
"""Records per millisecond of event time: for aggregates, and for Python functions and joins."""
WINDOWED = ("tumbling", "sliding", "session", "window-function", "interval-join")
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


@dataclass(frozen=True)
class Timeline:
    """When records happened, in milliseconds: `density` of them in each, in order.

    The source may have several readers, each of which has an equal part of the records; all parts
    cover the same time, so that readers that are equally fast have the same event time. Sessions
    end with a pause after every `block` of records.
    """

    density: int
    """Records per millisecond, over all readers."""
    readers: int = 1
    part: int = LARGEST_RECORD
    """The records of each reader."""
    block: int = LARGEST_RECORD
    pause: int = 0

    @property
    def per_reader(self) -> int:
        return self.density // self.readers

    def time_of(self, record: int) -> int:
        """The definition that all faster ways must agree with."""
        place = record % self.part
        blocks = place // (self.block // self.readers)
        return EPOCH + place // self.per_reader + blocks * self.pause

    def sql(self, record: str) -> str:
        """The time as an expression that Spark's and Flink's SQL both understand."""
        place = f"mod({record}, cast({self.part} as bigint))"
        blocks = f"cast(floor({place} / {self.block // self.readers}) as bigint) * {self.pause}"
        return f"{EPOCH} + cast(floor({place} / {self.per_reader}) as bigint) + {blocks}"


def timeline(workload: str, records: int, readers: int = 1) -> Timeline:
    """The times of a window workload; `records` counts only where readers share them."""
    part = records // readers if readers > 1 else LARGEST_RECORD
    if workload == "session":
        return Timeline(DENSE, readers, part, block=1000 * DENSE, pause=2 * SESSION_GAP)
    is_dense = workload in ("tumbling", "sliding")
    return Timeline(DENSE if is_dense else SPARSE, readers, part)


def join_bound(keys: int) -> int:
    """Half the milliseconds from one record of a key to the next: a record joins itself alone."""
    return keys // SPARSE // 2


def window_checksum(workload: str, records: int) -> int:
    """The sum of all results: each record is in one window, or session, or in one pair."""
    return records * (WINDOW // SLIDE if workload == "sliding" else 1)


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
    if workload in WINDOWED:
        return window_checksum(workload, records)
    return map_checksum(records) if workload == "map" else running_sum_checksum(records, keys)


def check_size(records: int, keys: int) -> None:
    """Refuse sizes for which the rule would not hold."""
    if math.gcd(MULTIPLIER, keys) != 1:
        raise ValueError(f"{keys} keys share a factor with {MULTIPLIER}; take another number")
    if records > LARGEST_RECORD:
        raise ValueError(f"{records} records overflow 64 bits; at most {LARGEST_RECORD}")


def _triangle(n: int) -> int:
    return n * (n + 1) // 2
