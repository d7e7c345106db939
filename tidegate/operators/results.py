"""Emits the results of functions: to the main output, or to the side output of a tag."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from tidegate.operators.base import Output
from tidegate.operators.output_tag import OutputTag
from tidegate.operators.user_code import Outcome
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat

_first = itemgetter(0)


def emit_outcome(output: Output, outcome: Outcome, format: ArrowFormat | None) -> None:
    """Emit the results, then raise the failure, if there is one."""
    results, timestamps, failure, is_inert = outcome
    if results:
        emitted = Batch(records=results, format=format, timestamps=timestamps, is_inert=is_inert)
        output.emit(emitted)
    if failure is not None:
        raise failure


def emit_tagged_outcome(
    output: Output,
    outcome: Outcome,
    format: ArrowFormat | None,
    side_formats: Mapping[str, ArrowFormat | None],
) -> None:
    """Like `emit_outcome`; a result `(tag, value)` goes to the side output of the tag."""
    results, timestamps, failure, is_inert = outcome
    tagged = _tagged(results) if OutputTag.are_used and not is_inert else []
    if not tagged:
        emit_outcome(output, outcome, format)
        return
    untagged = sorted(set(range(len(results))).difference(tagged))
    if untagged:
        main = Batch(records=results, format=format, timestamps=timestamps)
        output.emit(main.take(np.array(untagged)))
    by_tag: dict[str, list[int]] = {}
    for i in tagged:
        by_tag.setdefault(results[i][0].tag_id, []).append(i)
    for tag, positions in by_tag.items():
        values: list[Any] = [results[i][1] for i in positions]
        stamps = None if timestamps is None else timestamps[positions]
        side = Batch(records=values, format=side_formats.get(tag), timestamps=stamps)
        output.emit_side(tag, side)
    if failure is not None:
        raise failure


def _tagged(results: list[Any]) -> list[int]:
    """Which results are `(tag, value)`; finding none, the usual case, takes no Python loop."""
    kinds = set(map(type, results))
    if tuple not in kinds:
        return []
    if len(kinds) == 1:
        try:
            if OutputTag not in set(map(type, map(_first, results))):
                return []
        except IndexError:  # an empty tuple
            pass
    return [
        i
        for i, result in enumerate(results)
        if type(result) is tuple and len(result) == 2 and type(result[0]) is OutputTag
    ]
