"""Poison records: detected when user code fails on them, and skipped if so configured.

A batch without failures does not touch this code.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from types import FunctionType
from typing import Any, Final, Protocol

from tidegate.core.errors import TypeMismatch, UserError, UserFunctionError, shorten
from tidegate.core.poison import DeadLetter, PoisonOrders, PoisonRecord
from tidegate.operators.base import OperatorContext, Output
from tidegate.operators.user_code import UserCode
from tidegate.stream.batch import Batch
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

DEAD_LETTERS: Final = "_dead-letters"
"""The side output of every operator for the records that it skips."""
DEAD_LETTER_TYPE: Final = Types.ROW_NAMED(
    [
        "job_id",
        "operator",
        "uid",
        "subtask",
        "position",
        "record",
        "raw",
        "raw_format",
        "error",
        "traceback",
        "failed_at",
    ],
    [
        Types.STRING(),
        Types.STRING(),
        Types.STRING(),
        Types.INT(),
        Types.STRING(),
        Types.STRING(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.STRING(),
        Types.STRING(),
        Types.STRING(),
        Types.SQL_TIMESTAMP(),
    ],
)
Position = Callable[[], str | None]
_FIRST_PIECE: Final = 64
"""Records tried at once after a skipped one; the number doubles each time."""


def _nowhere() -> None:
    """The position outside a chain with a source."""


class DeadLetters:
    """What one operator skips. `position` returns how far the source of its chain has read."""

    def __init__(
        self,
        context: OperatorContext,
        output: Output,
        orders: PoisonOrders,
        position: Position = _nowhere,
    ) -> None:
        self._context = context
        self._output = output
        self._orders = orders
        self._position = position
        self._user_code = UserCode(context)
        self._format = arrow_format(DEAD_LETTER_TYPE)

    def settle(self, record: Any, failure: UserFunctionError) -> None:
        """Skip a record that failed, or raise its failure."""
        poison = PoisonRecord(self._context.operator_id, digest_of(record))
        self._settle(poison, failure, shorten(record), *_pickled(record))

    def undecodable(self, position: str, raw: bytes, error: Exception) -> None:
        """Skip a record that a source cannot decode, or raise its error."""
        shown = f"<{shorten(raw)} at {position}>"
        failure = self._user_code.function_error(error, shown)
        poison = PoisonRecord(self._context.operator_id, digest_of(raw), position)
        self._settle(poison, failure, shorten(raw), raw, "bytes")

    def _settle(
        self,
        poison: PoisonRecord,
        failure: UserFunctionError,
        shown: str,
        raw: bytes,
        raw_format: str,
    ) -> None:
        if not self._orders.is_skipped(poison):
            failure.poison = poison
            raise failure
        context = self._context
        position = self._position() if poison.position is None else poison.position
        letter = DeadLetter(
            at=context.clock.time(),
            operator=context.name,
            uid=context.uid,
            subtask=int(context.subtask),
            position=position,
            record=shown,
            raw=raw,
            raw_format=raw_format,
            error=failure.cause,
            traceback=str(failure.args[4]),
        )
        self._output.emit_side(DEAD_LETTERS, Batch.of_records([self._row(letter)], self._format))
        context.skip(letter)
        where = "" if position is None else f" ({position})"
        number = f"({context.subtask + 1}/{context.parallelism})"
        context.console(
            f"WARNING {context.name} {number}: skipped the record {shown}{where}: {failure.cause}"
        )

    def _row(self, letter: DeadLetter) -> Row:
        fields = asdict(letter)
        failed_at = datetime.fromtimestamp(fields.pop("at"), UTC).replace(tzinfo=None)
        return Row(job_id=self._context.job_id, **fields, failed_at=failed_at)


class Process(Protocol):
    """A receiver of batches: an operator, or a channel."""

    def __call__(self, batch: Batch, input_index: int = 0, /) -> None: ...


def guarded(
    process: Process, context: OperatorContext, output: Output, position: Position = _nowhere
) -> Process:
    """The same receiver, guarded if poison records are tracked."""
    if context.poison is None:
        return process
    dead_letters = DeadLetters(context, output, context.poison, position)
    return PoisonGuard(process, context, dead_letters).process


class PoisonGuard:
    """Guards an operator or a channel: finds the records on which it fails."""

    def __init__(
        self,
        process: Process,
        context: OperatorContext,
        dead_letters: DeadLetters,
    ) -> None:
        self._process = process
        self._operator_id = context.operator_id
        self._user_code = UserCode(context)
        self._dead_letters = dead_letters

    def process(self, batch: Batch, input_index: int = 0) -> None:
        """Process all records in order, except those that are skipped."""
        start, size = 0, len(batch)
        while start < len(batch):
            stop = min(start + size, len(batch))
            piece = batch if stop - start == len(batch) else batch.slice(start, stop)
            try:
                self._process(piece, input_index)
            except UserError as error:
                suspects = self._suspects(error, piece)
                if suspects is None:
                    raise self._user_code.failure(error) from None
                start += suspects.start
                if len(suspects) > 1:
                    size = len(suspects) // 2
                    continue
                self._settle(batch.records[start], error)
                start, size = start + 1, _FIRST_PIECE
            else:
                start, size = start + len(piece), 2 * size

    def _suspects(self, error: UserError, piece: Batch) -> range | None:
        """The records of the piece that may have caused the error; None if none has."""
        if isinstance(error, UserFunctionError):
            is_own = error.operator_id == self._operator_id and error.poison is None
            return error.suspects if is_own else None
        if error.suspects is None and isinstance(error, TypeMismatch) and not _fits(piece):
            return range(len(piece))  # operators that need columns create them first
        return error.suspects

    def _settle(self, record: Any, error: UserError) -> None:
        if isinstance(error, UserFunctionError):
            operator, uid, subtask, _, trace = error.args
            failure = UserFunctionError(operator, uid, subtask, shorten(record), trace)
        else:
            failure = self._user_code.function_error(error, record)
        self._dead_letters.settle(record, failure)


def _fits(batch: Batch) -> bool:
    if batch.format is None or batch.is_columnar:
        return True
    try:
        _ = batch.columns
    except TypeMismatch:
        return False
    return True


def _pickled(record: Any) -> tuple[bytes, str]:
    try:
        return pickle.dumps(record, protocol=5), "pickle"
    except Exception:
        return shorten(record, 10_000).encode(), "repr"


_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes)


def digest_of(record: Any) -> str:
    """A digest of the content, independent of object identity and of the order of sets."""
    try:
        found = _canonical(record)
    except RecursionError:
        found = repr(record).encode()
    return hashlib.sha256(found).hexdigest()[:32]


def _canonical(value: Any) -> bytes:
    kind = type(value)
    if kind in _PLAIN:
        return pickle.dumps(value, protocol=5)
    name = _name_of(kind)
    if isinstance(value, type | FunctionType):
        return _joined(name, [_name_of(value).encode()])
    if kind in (tuple, list):
        return _joined(name, map(_canonical, value))
    if kind in (set, frozenset):
        return _joined(name, sorted(map(_canonical, value)))
    if kind is dict:
        return _joined(name, (_canonical(part) for entry in value.items() for part in entry))
    try:
        return _joined(name, map(_canonical, _parts(value.__reduce_ex__(4))))
    except RecursionError:
        raise
    except Exception:
        return _joined(name, [repr(value).encode()])  # it contains something that cannot be pickled


def _parts(reduced: Any) -> list[Any]:
    """The parts of an object, as returned by its `__reduce_ex__`."""
    if isinstance(reduced, str):
        return [reduced]
    return [list(part) if hasattr(part, "__next__") else part for part in reduced]


def _name_of(found: Any) -> str:
    return f"{found.__module__}.{found.__qualname__}"


def _joined(name: str, parts: Iterable[bytes]) -> bytes:
    found = list(parts)
    lengths = ",".join(str(len(part)) for part in found)
    return f"{name}({lengths})".encode() + b"".join(found)
