"""Converts stored state to its current declaration if only fields were added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import StateMisuse, StateTypeChanged
from tidegate.state.backend import StateMetadata
from tidegate.state.descriptors import (
    TIME_TO_LIVE,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
)
from tidegate.types.evolution import (
    Evolution,
    Inconvertible,
    TypeStructure,
    evolution,
    structure_of,
)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Converts all values of a state whose type has gained fields."""

    state: str
    added: tuple[str, ...]
    """The new fields with their defaults, as text."""
    _convert: Callable[[Any], Any]

    def __call__(self, value: Any) -> Any:
        """Convert a stored value.

        Raises:
            StateMisuse: the value is not of the declared type.
        """
        try:
            return self._convert(value)
        except Inconvertible as reason:
            raise StateMisuse(
                f"state {self.state!r} cannot get {', '.join(self.added) or 'another order'}: its "
                f"values do not match its stored declaration: {reason}; restore it, or use "
                "another name"
            ) from None


@dataclass(frozen=True, slots=True)
class DeclaredState:
    declaration: str
    conversion_of: Callable[[StateMetadata], Conversion | None]
    """Returns the conversion of what is stored under its name; raises StateTypeChanged."""


def conversion_of(declared: StateDescriptor, stored: StateMetadata) -> Conversion | None:
    """The conversion of stored values to the declared type; None: they already match.

    Raises:
        StateTypeChanged: the type has changed in other ways than by new fields.
    """
    found = _evolution(declared, stored)
    if found is None:
        return None
    convert = found.convert
    if declared.ttl_config is not None:
        convert = _of_timed(convert)
    if isinstance(declared, ListStateDescriptor):
        convert = _of_list(convert)
    elif isinstance(declared, MapStateDescriptor):
        convert = _of_map(convert)
    return Conversion(stored.name, found.added, convert)


def element_conversion_of(
    declared: StateDescriptor, redistribution: str, stored: StateMetadata
) -> Conversion | None:
    """Like `conversion_of`, for elements of operator state, whose declaration has a prefix.

    The elements of a map are pairs.
    """
    found = _evolution(declared, stored, f"{redistribution} ")
    if found is None:
        return None
    is_map = isinstance(declared, MapStateDescriptor)
    convert = _of_pair(found.convert) if is_map else found.convert
    return Conversion(stored.name, found.added, convert)


def _evolution(
    declared: StateDescriptor, stored: StateMetadata, prefix: str = ""
) -> Evolution | None:
    declaration = prefix + declared.declaration
    if stored.declaration == declaration:
        return None
    reason: str | None = None
    if stored.structure is not None and stored.declaration.startswith(prefix):
        try:
            found = _compared(stored.structure, declared)
        except Inconvertible as failure:
            reason = str(failure)
        else:
            if found is not None:
                return found
    raise StateTypeChanged(stored.name, stored.declaration, declaration, reason)


def _compared(stored: TypeStructure, declared: StateDescriptor) -> Evolution | None:
    was = dict(stored.parts)
    if stored.kind != declared.structure.kind:
        if stored.kind.partition(TIME_TO_LIVE)[0] == declared.kind:
            raise Inconvertible("a time to live cannot be added or removed")
        return None
    if isinstance(declared, MapStateDescriptor) and was["key"] != structure_of(
        declared.key_type_info
    ):
        raise Inconvertible("the keys of the map have another type")
    return evolution(was["value"], declared.type_info)


def _of_timed(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda timed: (convert(timed[0]), timed[1])


def _of_list(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda elements: [convert(element) for element in elements]


def _of_map(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda entries: {key: convert(value) for key, value in entries.items()}


def _of_pair(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda pair: (pair[0], convert(pair[1]))
