"""Declarations of state: a name, a type, and optionally a time to live."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any, ClassVar

from tidegate.core.durations import DurationLike, as_timedelta
from tidegate.core.errors import ConfigError
from tidegate.state.ttl import StateTtlConfig
from tidegate.types.evolution import TypeStructure, structure_of
from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import TypeInformation

__all__ = [
    "AggregatingStateDescriptor",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueStateDescriptor",
]

TIME_TO_LIVE = ", with a time to live"
"""The end of the declaration of a state whose values expire."""


class StateDescriptor(ABC):
    """Declares a state. Two descriptors with one name in one operator refer to the same state.

    The type is optional: without one, any picklable value can be stored. It may be type
    information, or a declaration such as a dataclass.
    """

    kind: ClassVar[str]

    def __init__(self, name: str, type_info: TypeInformation | None) -> None:
        if not name or type(name) is not str:
            raise ConfigError("state name", name, "give a non-empty text")
        self.name = name
        self.type_info = None if type_info is None else as_type_info(type_info)
        self.ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        """The name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig | DurationLike) -> None:
        """Forget values some time after they were written (or read: see StateTtlConfig)."""
        if not isinstance(ttl_config, StateTtlConfig):
            ttl_config = StateTtlConfig(as_timedelta(ttl_config))
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None

    @property
    def declaration(self) -> str:
        """Kind and type as text, which must stay the same for stored state to be found."""
        held = "any value" if self.type_info is None else str(self.type_info)
        lasting = "" if self.ttl_config is None else TIME_TO_LIVE
        return f"{self.kind} state of {held}{lasting}"

    @property
    def structure(self) -> TypeStructure:
        """The declaration with all its parts, to check whether stored state can be converted."""
        kind = self.kind if self.ttl_config is None else f"{self.kind}{TIME_TO_LIVE}"
        return TypeStructure(kind, (("value", structure_of(self.type_info)),))

    def __repr__(self) -> str:
        return f"<{self.declaration}, named {self.name!r}>"


class ValueStateDescriptor(StateDescriptor):
    """One value per key."""

    kind = "value"

    def __init__(
        self,
        name: str,
        value_type_info: TypeInformation | None = None,
        default_value: Any = None,
    ) -> None:
        super().__init__(name, value_type_info)
        self.default_value = default_value
        """What `value()` returns for a key without a value; a copy if it is mutable."""


class ListStateDescriptor(StateDescriptor):
    """A list of elements per key; as operator state, a list that is split on rescaling."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """A map per key; as operator state, a map that is the same in every subtask."""

    kind = "map"

    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation | None = None,
        value_type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info = None if key_type_info is None else as_type_info(key_type_info)

    @property
    def declaration(self) -> str:
        keys = "any value" if self.key_type_info is None else str(self.key_type_info)
        return super().declaration.replace(" of ", f" of {keys} to ", 1)

    @property
    def structure(self) -> TypeStructure:
        values = super().structure
        return TypeStructure(
            values.kind, (("key", structure_of(self.key_type_info)), *values.parts)
        )


class ReducingStateDescriptor(StateDescriptor):
    """One value per key, into which each added value is reduced."""

    kind = "reducing"

    def __init__(
        self,
        name: str,
        reduce_function: Any,
        type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(name, type_info)
        self.reduce: Callable[[Any, Any], Any] = getattr(reduce_function, "reduce", reduce_function)
        if not callable(self.reduce):
            raise TypeError(f"expected a ReduceFunction or a function, got {reduce_function!r}")
        self._reduce_function = reduce_function

    def get_reduce_function(self) -> Any:
        """The reduce function."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """One accumulator per key; `get` returns its result."""

    kind = "aggregating"

    def __init__(
        self, name: str, agg_function: Any, state_type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, state_type_info)
        missing = [
            method
            for method in ("create_accumulator", "add", "get_result")
            if not callable(getattr(agg_function, method, None))
        ]
        if missing:
            raise TypeError(f"expected an AggregateFunction, got {agg_function!r}")
        self._agg_function = agg_function

    def get_agg_function(self) -> Any:
        """The aggregate function."""
        return self._agg_function
