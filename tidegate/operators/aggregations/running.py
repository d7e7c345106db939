"""Running sums and extremes of many keys at once, with a result for every record.

Records are sorted by place, so that those of a key form a segment in input order. Values of earlier
batches enter at the start of each segment, and results are put back in the order of the records.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.state.keys.word_index import Places

Numbers = npt.NDArray[Any]

_RADIX_PLACES: Final = 1 << 16
"""NumPy sorts 16-bit numbers by radix, several times faster than wider ones."""
_LARGEST_BITS: Final = 63
"""The number of bits of a non-negative integer."""
_LONG_SEGMENT: Final = 64
_EXACT: Final = 1 << 53
"""Integers up to this are exact as floats."""


class Segments:
    """The records of a batch, grouped by place."""

    def __init__(self, places: Places, place_count: int) -> None:
        self.length = len(places)
        self._order: Places | None
        if place_count == 1 or bool((places[1:] >= places[:-1]).all()):
            self._order, ordered = None, places
        elif place_count <= _RADIX_PLACES:
            self._order = np.argsort(places.astype(np.uint16), kind="stable")
            ordered = places.take(self._order)
        elif place_count.bit_length() + self.length.bit_length() > _LARGEST_BITS:
            self._order = np.argsort(places, kind="stable")
            ordered = places.take(self._order)
        else:
            # Numbers that combine place and position are all different, so that any sort is stable.
            bits = np.int64(self.length.bit_length())
            both = np.sort((places.astype(np.int64) << bits) | np.arange(self.length))
            self._order = both & ((1 << bits) - 1)
            ordered = both >> bits
        (changes,) = (ordered[1:] != ordered[:-1]).nonzero()
        bounds = np.empty(len(changes) + 2 if self.length else 1, np.intp)
        bounds[0], bounds[1:-1], bounds[-1] = 0, changes + 1, self.length
        self.starts: Places = bounds[:-1]
        """The start of each segment."""
        self.ends: Places = bounds[1:] - 1
        """The last position of each segment."""
        self.lengths: Places = bounds[1:] - self.starts
        self.places: Places = ordered.take(self.starts)
        """The place of each segment."""

    def ordered(self, values: Numbers) -> Numbers:
        """Values of records, ordered by segment."""
        return values if self._order is None else values.take(self._order)

    def restored(self, values: Numbers) -> Numbers:
        """Values ordered by segment, put back in the order of the records."""
        if self._order is None:
            return values
        back = np.empty_like(values)
        back[self._order] = values
        return back

    def spread(self, values: Numbers) -> Numbers:
        """A value for each segment, repeated for each of its records."""
        return np.repeat(values, self.lengths)


def running_sum(segments: Segments, values: Numbers, sums: Numbers) -> Numbers:
    """The running sum of each record's place, up to and including it; `sums` are updated.

    Integers wrap around on overflow, as in NumPy: see `first_overflow`.
    """
    ordered = segments.ordered(values)
    if sums.dtype.kind == "f":
        # As in Python, infinities of both signs give NaN, and overflows give infinity: no warnings.
        with np.errstate(invalid="ignore", over="ignore"):
            running = _running_float_sum(segments, ordered.astype(sums.dtype), sums)
    else:
        running = np.cumsum(ordered, dtype=sums.dtype)
        starts = segments.starts
        before = running.take(starts) - ordered.take(starts)
        running += segments.spread(sums.take(segments.places) - before)
    sums[segments.places] = running.take(segments.ends)
    return segments.restored(running)


def _running_float_sum(segments: Segments, ordered: Numbers, sums: Numbers) -> Numbers:
    """Added one by one, because the order of float additions affects the result."""
    starts, lengths = segments.starts, segments.lengths
    ordered[starts] += sums.take(segments.places)
    long = lengths > _LONG_SEGMENT
    for start, length in zip(starts[long].tolist(), lengths[long].tolist(), strict=True):
        np.add.accumulate(ordered[start : start + length], out=ordered[start : start + length])
    starts, lengths = starts[~long], lengths[~long]
    for position in range(1, int(lengths.max(initial=0))):
        reaching = lengths > position
        starts, lengths = starts[reaching], lengths[reaching]
        ordered[starts + position] += ordered[starts + position - 1]
    return ordered


def means(sums: Numbers, counts: Numbers) -> Numbers:
    """Sums divided by counts, as in Python: NumPy would round integers above 53 bits before."""
    divisors = np.maximum(counts, 1)
    found: Numbers = sums / divisors
    if sums.dtype.kind == "i":
        large = np.flatnonzero((sums > _EXACT) | (sums < -_EXACT))
        pairs = zip(sums[large].tolist(), divisors[large].tolist(), strict=True)
        found[large] = [total / count for total, count in pairs]
    return found


def first_overflow(running: Numbers, values: Numbers) -> int | None:
    """The first record whose value makes the sum exceed 64 bits."""
    # The sign of a sum differs from those of both its parts only if it wrapped around.
    before = running - values
    wrapped = ((running ^ before) & (running ^ values)) < 0
    return int(wrapped.argmax()) if wrapped.any() else None


def first_infinite(shown: Numbers, running: Numbers) -> int | None:
    """The first record whose sum is finite, but not in the type in which it is shown."""
    if shown.dtype == running.dtype:
        return None
    lost = np.isinf(shown) & np.isfinite(running)
    return int(lost.argmax()) if lost.any() else None


def running_least(segments: Segments, ranks: Numbers) -> Places:
    """For each record, the one with the least rank in its place so far; the first among equals.

    `ranks` are integers from 0.
    """
    ordered = segments.ordered(ranks)
    # Shift each segment down by more than any rank, so that the minimum starts over in each.
    step = int(ordered.max(initial=0)) + 1
    shift = segments.spread(np.arange(len(segments.places), dtype=np.int64) * step)
    least = np.minimum.accumulate(ordered - shift)
    positions = np.arange(len(ordered))
    improves = np.empty(len(ordered), np.bool_)
    improves[:1] = True
    np.less(least[1:], least[:-1], out=improves[1:])
    winners = np.maximum.accumulate(np.where(improves, positions, 0))
    return segments.restored(segments.ordered(positions).take(winners))


def ranks_of(values: pa.Array[Any], segments: int, *, descending: bool) -> npt.NDArray[np.int64]:
    """Integers from 0 that order the values: the best has the least, null the greatest.

    NaN is greater than any other number, as in Java, and both zeros are equal.
    """
    kind = values.type
    if isinstance(values, pa.DictionaryArray):
        return ranks_of(values.dictionary_decode(), segments, descending=descending)
    if pa.types.is_floating(kind):
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        _, ranks = np.unique(numbers, return_inverse=True)
        return _directed(ranks, values, descending)
    if (whole := _whole_numbers(values)) is not None:
        least, greatest = int(whole.min(initial=0)), int(whole.max(initial=0))
        # The distance itself is a rank, unless the ranks of all segments exceed 64 bits.
        if (greatest - least + 2) * (segments + 1) < 1 << 62:
            return _directed(whole - least, values, descending)
        _, ranks = np.unique(whole, return_inverse=True)
        return _directed(ranks, values, descending)
    # Nulls come last in either order.
    ranked = pc.rank(
        values, sort_keys="descending" if descending else "ascending", tiebreaker="dense"
    )
    return ranked.to_numpy().astype(np.int64) - 1


def _directed(
    ranks: npt.NDArray[np.int64], values: pa.Array[Any], descending: bool
) -> npt.NDArray[np.int64]:
    top = int(ranks.max(initial=0))
    if descending:
        ranks = top - ranks
    if values.null_count:
        ranks = np.where(values.is_null().to_numpy(zero_copy_only=False), top + 1, ranks)
    return ranks


def _whole_numbers(values: pa.Array[Any]) -> npt.NDArray[np.int64] | None:
    kind = values.type
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)) or kind == pa.uint64():
        return None
    if values.null_count:
        values = values.fill_null(False if pa.types.is_boolean(kind) else 0)
    return values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
