"""Plans how a DataFrame becomes a keyed state, and what its columns mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tidegate.core.errors import ConfigError, MissingField
from tidegate.savepoint.building import BuildPlan
from tidegate.savepoint.python_values import Reading
from tidegate.savepoint.summaries import kind_and_type
from tidegate.state.backend import PayloadForm, StateMetadata
from tidegate.state.canonical.tables import (
    KEY,
    KEY_GROUP,
    PICKLED,
    TIME_WINDOW,
    TIMERS,
    TIMESTAMP,
    VALUE,
    TableForm,
)
from tidegate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.types.infer import as_type_info
from tidegate.types.shapes import Shape
from tidegate.types.typeinfo import TypeInformation, Types

_KINDS: Final = ("value", "list", "map", "reducing")


@dataclass(frozen=True, slots=True)
class NewState:
    """A keyed state to build from a DataFrame."""

    uid: str
    metadata: StateMetadata
    descriptor: StateDescriptor | None
    """None: the declaration of the existing state of this name."""
    dataframe: Any
    key: str | tuple[str, ...]
    value: str | None

    @property
    def name(self) -> str:
        return self.metadata.name


def descriptor_of(name: str, kind: str, value_type: Any, key_type: Any) -> StateDescriptor:
    """The descriptor that a job would have for such a state."""
    held = None if value_type is None else as_type_info(value_type)
    match kind:
        case "value":
            return ValueStateDescriptor(name, held)
        case "list":
            return ListStateDescriptor(name, held)
        case "map":
            return MapStateDescriptor(
                name, None if key_type is None else as_type_info(key_type), held
            )
        case "reducing":
            return ReducingStateDescriptor(name, lambda one, _: one, held)
    raise ConfigError(
        "kind", kind, f"give one of {', '.join(_KINDS)}, or the descriptor of the state"
    )


def plan_of(
    state: NewState, form: TableForm | None, schema: pa.Schema, max_parallelism: int, parts: int
) -> BuildPlan:
    """How the rows of a DataFrame with this schema become the state.

    Raises:
        MissingField: a column is missing.
        TypeMismatch: a column has another type than the state.
    """
    columns = (state.key,) if isinstance(state.key, str) else state.key
    kind, _ = kind_and_type(state.metadata)
    is_columnar = state.metadata.form is PayloadForm.ARROW
    value = state.value or (TIMESTAMP if kind == TIMERS else VALUE)
    wanted = [*columns]
    if is_columnar:
        assert form is not None, "a columnar state has no descriptor, so there was one before"
        wanted += [name for name in form.schema.names if name not in (KEY, KEY_GROUP)]
    else:
        wanted.append(value)
    for name in wanted:
        if name not in schema.names:
            where = f"the DataFrame for the state {state.name!r}"
            raise MissingField(name, tuple(schema.names), where)
    plan = BuildPlan(
        metadata=state.metadata,
        kind=kind,
        max_parallelism=max_parallelism,
        parts=parts,
        key_columns=columns,
        is_tuple=not isinstance(state.key, str),
    )
    if is_columnar and form is not None:
        return replace(plan, is_tuple=form.is_tuple, columnar=form.schema)
    plan = replace(
        plan,
        keys=_key_readings(state, form),
        window_columns=_window_columns(form, schema),
        value_column=value,
        values=_value_reading(state, form),
        pickled_column=PICKLED if PICKLED in schema.names else None,
        is_timed=state.descriptor is not None and state.descriptor.ttl_config is not None,
    )
    for name, reading in zip(columns, plan.keys, strict=True):
        reading.check(schema.field(name).type)
    plan.values.check(schema.field(value).type)
    return plan


def _window_columns(form: TableForm | None, schema: pa.Schema) -> tuple[str, ...]:
    """The window columns of the existing state, or those of time windows."""
    known = TIME_WINDOW if form is None or form.window is None else form.window_names
    return known if set(known) <= set(schema.names) else ()


def _key_readings(state: NewState, form: TableForm | None) -> tuple[Reading, ...]:
    if isinstance(state.key, str):
        if form is not None and isinstance(form.key, Shape):
            return (Reading(shape=form.key.document(), is_key=True),)
        return (Reading(is_key=True),)
    return tuple(Reading(is_key=True) for _ in state.key)


def _value_reading(state: NewState, form: TableForm | None) -> Reading:
    descriptor = state.descriptor
    if descriptor is None:
        assert form is not None and isinstance(form.value, Shape)
        return Reading(shape=form.value.document())
    return Reading(type_info=_type_of(descriptor))


def _type_of(descriptor: StateDescriptor) -> TypeInformation | None:
    """The type of the whole value of a state."""
    held = descriptor.type_info
    if held is None:
        return None
    if isinstance(descriptor, ListStateDescriptor):
        return Types.LIST(held)
    if isinstance(descriptor, MapStateDescriptor):
        keys = descriptor.key_type_info
        return None if keys is None else Types.MAP(keys, held)
    return held
