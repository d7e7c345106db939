"""The digest of a record: the same for equal records, in every process."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable
from types import FunctionType
from typing import Any, Final

_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes)


def digest_of(record: Any) -> str:
    """Of what the record holds; not of which objects hold it, nor of the order of a set."""
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
        return _joined(name, [repr(value).encode()])  # it holds what does not travel


def _parts(reduced: Any) -> list[Any]:
    """What an object is made of, as it says to pickle."""
    if isinstance(reduced, str):
        return [reduced]
    return [list(part) if hasattr(part, "__next__") else part for part in reduced]


def _name_of(found: Any) -> str:
    return f"{found.__module__}.{found.__qualname__}"


def _joined(name: str, parts: Iterable[bytes]) -> bytes:
    found = list(parts)
    lengths = ",".join(str(len(part)) for part in found)
    return f"{name}({lengths})".encode() + b"".join(found)
