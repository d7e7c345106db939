"""What happens to records on which user code fails repeatedly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.datastream.execution.sink_operators import SinkLike, sink_operator
from tidegate.graph.logical import Transformation, Upstream
from tidegate.operators.poison import DEAD_LETTER_TYPE, DEAD_LETTERS
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import TypeInformation

_NAME = "Dead Letters"
_UID = "tidegate-dead-letters"


@dataclass(frozen=True, slots=True)
class PoisonRecords:
    """A choice for `env.on_poison_record()`."""

    skip_after: int | None
    dead_letters: SinkLike | None = None

    @staticmethod
    def fail() -> PoisonRecords:
        """Fail the job; its restart strategy decides what happens next."""
        return PoisonRecords(None)

    @staticmethod
    def skip(after: int = 3, dead_letters: SinkLike | None = None) -> PoisonRecords:
        """Skip a record when the job has failed on it `after` times; 0: at once.

        Skipped records go to the sink `dead_letters` as rows of `dead_letter_type()`, committed
        with the same checkpoints as all other results. Without this sink, they are only logged.
        """
        if after < 0:
            raise ValueError(f"after must be a number of failures, 0 or more, not {after}")
        return PoisonRecords(after, dead_letters)

    @staticmethod
    def dead_letter_type() -> TypeInformation:
        """The type of the rows that go to the sink for dead letters."""
        return DEAD_LETTER_TYPE


def dead_letter_sinks(
    transformations: Sequence[Transformation], sink: SinkLike
) -> list[Transformation]:
    """A sink for each disconnected part of the program.

    Parts that fail and restart separately still do so.
    """
    parts: list[list[Transformation]] = []
    for transformation in transformations:
        read = {upstream.transformation for upstream in transformation.inputs}
        joined = [part for part in parts if not read.isdisjoint(part)]
        parts = [part for part in parts if read.isdisjoint(part)]
        parts.append([*(member for part in joined for member in part), transformation])
    ordered = [sorted(part, key=lambda t: t.id) for part in parts]
    ordered.sort(key=lambda part: part[0].id)
    return [_sink_for(part, sink, number) for number, part in enumerate(ordered)]


def _sink_for(part: list[Transformation], sink: SinkLike, number: int) -> Transformation:
    for transformation in part:
        transformation.side_types[DEAD_LETTERS] = DEAD_LETTER_TYPE
    return Transformation(
        name=_NAME if number == 0 else f"{_NAME} {number + 1}",
        operator=sink_operator(sink, arrow_format(DEAD_LETTER_TYPE)),
        inputs=tuple(Upstream(t, side_tag=DEAD_LETTERS) for t in part),
        uid=_UID if number == 0 else f"{_UID}-{number + 1}",
        is_sink=True,
    )
