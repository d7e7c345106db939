"""Converts chunks of keyed state to tables for Spark and other readers, and back.

key_group   the key group of the key
key         the key: a value, or a struct for several parts
window      for window state: `window_start` and `window_end`, or the number of a count window
value       the value; for timers `timestamp`; for columnar state its columns
pickled     (key, value) if the columns do not represent them exactly; mostly null
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import StateMisuse
from tidegate.state.backend import PayloadForm, StateChunk, StateMetadata
from tidegate.state.canonical.shape_choice import choose_shape, shape_of_state
from tidegate.state.chunks import Values, chunk_of, contents_of
from tidegate.state.columns import from_bytes, key_names, key_width, to_bytes
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.keys.key_order import Runs
from tidegate.state.keys.key_rows import pickled_keys, stored_columns
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.keys.window_keys import is_window_key, key_of_window, parts_of, window_key
from tidegate.types.record_shapes import ANY, numbered, shape_of_document
from tidegate.types.shapes import Misfit, Shape, Single

KEY_GROUP: Final = "key_group"
KEY: Final = "key"
VALUE: Final = "value"
TIMESTAMP: Final = "timestamp"
PICKLED: Final = "pickled"
WINDOW: Final = "window"
TIME_WINDOW: Final = ("window_start", "window_end")
TIMERS: Final = "timers"
"""The declaration of timers."""
_DOCUMENT: Final = b"tidegate"
_VERSION: Final = 1
_PLAIN: Final = {
    Single(name).arrow_type: Single(name)
    for name in ("integer", "float", "boolean", "text", "bytes")
}
"""Columns that Arrow returns unchanged."""
_TICKS: Final = (pa.int64(), pa.int32())
"""The types for times that Spark or Parquet lacks."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The content of a chunk, ordered by key group."""

    groups: Runs
    keys: list[Any] | KeyColumns
    values: Values | pa.RecordBatch
    """For columnar state, the columns besides the key."""

    def __len__(self) -> int:
        return sum(count for _, count in self.groups)


@dataclass(frozen=True)
class TableForm:
    """How the entries of a state are represented as columns."""

    metadata: StateMetadata
    key: Shape | pa.Schema
    """Columnar keys keep their types."""
    is_tuple: bool
    """Whether columnar keys are tuples."""
    value: Shape | pa.Schema
    """Columnar values keep their types, too."""
    window: tuple[Shape, ...] | None = None
    """For keys of windows, the shapes of their parts; a single ANY stands for all parts."""

    @property
    def window_names(self) -> tuple[str, ...]:
        parts = 0 if self.window is None else len(self.window)
        return TIME_WINDOW if parts == len(TIME_WINDOW) else numbered_windows(parts)

    @property
    def value_name(self) -> str:
        return TIMESTAMP if self.metadata.declaration == TIMERS else VALUE

    def is_like(self, other: TableForm) -> bool:
        """Whether the tables of both have the same columns with the same meaning."""
        mine, others = (
            (self.key, self.is_tuple, self.value, self.window),
            (other.key, other.is_tuple, other.value, other.window),
        )
        return mine == others

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema, with everything needed to read the table again."""
        fields: list[pa.Field[Any]] = [pa.field(KEY_GROUP, pa.int32(), nullable=False)]
        fields.append(pa.field(KEY, self._key_type()))
        for name, part in zip(self.window_names, self.window or (), strict=True):
            fields.append(pa.field(name, part.arrow_type))
        if isinstance(self.value, Shape):
            fields.append(pa.field(self.value_name, self.value.arrow_type))
            fields.append(pa.field(PICKLED, pa.large_binary()))
        else:
            fields += [pa.field(f.name, _portable_type(f.type)) for f in self.value]
        return pa.schema(fields, metadata={_DOCUMENT: json.dumps(self._document())})

    def _key_type(self) -> pa.DataType:
        if isinstance(self.key, Shape):
            return self.key.arrow_type
        types = [_portable_type(field.type) for field in self.key]
        if not self.is_tuple:
            return types[0]
        return pa.struct(list(zip(numbered(len(types)), types, strict=True)))

    def decoded_keys(self, column: pa.Array[Any]) -> list[Any] | KeyColumns:
        if isinstance(self.key, Shape):
            return self.key.decode(column)
        parts = [column]
        if self.is_tuple:
            assert isinstance(column, pa.StructArray)
            parts = [column.field(position) for position in range(len(self.key))]
        return KeyColumns(
            [_from_portable(part, f.type) for part, f in zip(parts, self.key, strict=True)],
            self.is_tuple,
        )

    def _document(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "state": self.metadata.name,
            "declaration": self.metadata.declaration,
            "form": self.metadata.form.name.lower(),
            "key": _described(self.key),
            "tuple": self.is_tuple,
            "value": _described(self.value),
            "window": None if self.window is None else [w.document() for w in self.window],
        }

    @classmethod
    def of(cls, schema: pa.Schema) -> TableForm:
        document = json.loads((schema.metadata or {})[_DOCUMENT])
        if document["version"] > _VERSION:
            raise StateMisuse(
                f"state {document['state']!r} was written in table format {document['version']}, "
                f"but this version of Tidegate reads {_VERSION}: use the version that wrote it"
            )
        form = PayloadForm[document["form"].upper()]
        return cls(
            StateMetadata(document["state"], document["declaration"], form),
            _recalled(document["key"]),
            document["tuple"],
            _recalled(document["value"]),
            _recalled_window(document.get("window")),
        )


def entries_of(chunk: StateChunk, form: PayloadForm) -> Entries:
    if form is PayloadForm.PICKLE:
        return Entries(chunk.groups, *contents_of(chunk))
    rows = from_bytes(chunk.payload)
    width, is_tuple = key_width(rows.schema.names)
    keys = KeyColumns(rows.columns[:width], is_tuple)
    return Entries(chunk.groups, keys, rows.select(list(range(width, rows.num_columns))))


def choose_form(
    metadata: StateMetadata, entries: Sequence[Entries], declared: StateDescriptor | None = None
) -> TableForm:
    """The form for a state with these first entries; there is at least one."""
    first = entries[0]
    key: Shape | pa.Schema
    value: Shape | pa.Schema
    window = None
    if isinstance(first.keys, KeyColumns):
        key = pa.schema([(f"{i}", column.type) for i, column in enumerate(first.keys.columns)])
    else:
        every: list[Any] = [key for each in entries for key in each.keys]
        if is_window_key(every[0]):
            window = _choose_window([parts_of(key) for key in every if is_window_key(key)])
            every = [key_of_window(key) for key in every if is_window_key(key)]
        key = choose_shape(every)
    if isinstance(first.values, pa.RecordBatch):
        value = first.values.schema
    else:
        values = [each.values for each in entries]
        value = _choose_value(values, shape_of_state(declared), metadata.declaration)
    is_tuple = isinstance(first.keys, KeyColumns) and first.keys.is_tuple
    return TableForm(metadata, key, is_tuple, value, window)


def _choose_window(parts: Sequence[tuple[Any, ...]]) -> tuple[Shape, ...]:
    """The shapes of the parts of windows; a single ANY if they have none in common."""
    if len(set(map(len, parts))) > 1:
        return (ANY,)
    shapes = tuple(choose_shape(part) for part in zip(*parts, strict=True))
    return shapes if all(shape.is_exact for shape in shapes) else (ANY,)


def numbered_windows(parts: int) -> tuple[str, ...]:
    """The columns of windows that are not times."""
    return (WINDOW,) if parts == 1 else tuple(f"{WINDOW}_{place}" for place in range(parts))


def _choose_value(values: Sequence[Any], declared: Shape | None, declaration: str) -> Shape:
    kinds = {None if isinstance(each, list) else each.type for each in values}
    if len(kinds) == 1 and (kind := kinds.pop()) in _PLAIN:
        return _PLAIN[kind]
    every = [value for each in values for value in _as_list(each)]
    return choose_shape(every, declared, declaration)


def table_of(entries: Entries, form: TableForm) -> pa.RecordBatch | None:
    """The entries as a table; None: their keys or columns do not fit the form."""
    groups, counts = zip(*entries.groups, strict=True)
    columns: list[pa.Array[Any]] = [pa.array(np.repeat(np.array(groups, np.int32), counts))]
    key, key_misfits = _encoded_keys(entries.keys, form)
    if key is None:
        return None
    columns.append(key)
    if form.window is not None and isinstance(entries.keys, list):
        windows, misfits = _encoded_windows(entries.keys, form.window)
        columns += windows
        key_misfits = misfits if key_misfits is None else key_misfits | misfits
    if not isinstance(form.value, Shape):
        rows = entries.values
        if not isinstance(rows, pa.RecordBatch) or rows.schema.types != form.value.types:
            return None
        return pa.RecordBatch.from_arrays(
            [*columns, *map(_portable, rows.columns)], schema=form.schema
        )
    value, value_misfits = _encoded(entries.values, form.value)
    columns.append(value)
    columns.append(_pickled(entries, form, key_misfits, value_misfits))
    return pa.RecordBatch.from_arrays(columns, schema=form.schema)


def _encoded_keys(
    keys: list[Any] | KeyColumns, form: TableForm
) -> tuple[pa.Array[Any] | None, npt.NDArray[np.bool_] | None]:
    if isinstance(form.key, Shape):
        if isinstance(keys, KeyColumns) or (form.window is None) is any(map(is_window_key, keys)):
            return None, None
        return _encoded(
            [key_of_window(k) for k in keys] if form.window is not None else keys, form.key
        )
    if not isinstance(keys, KeyColumns) or keys.is_tuple is not form.is_tuple:
        return None, None
    if [column.type for column in keys.columns] != form.key.types:
        return None, None
    parts = [_portable(column) for column in keys.columns]
    if not keys.is_tuple:
        return parts[0], None
    return pa.StructArray.from_arrays(parts, names=numbered(len(parts))), None


def _encoded_windows(
    keys: list[Any], shapes: tuple[Shape, ...]
) -> tuple[list[pa.Array[Any]], npt.NDArray[np.bool_]]:
    """The columns of windows, and where they do not represent the window exactly."""
    parts = [parts_of(key) for key in keys]
    if shapes == (ANY,):
        return [ANY.encode(parts)], np.ones(len(keys), np.bool_)
    none = (None,) * len(shapes)
    misfits = np.array([len(each) != len(shapes) for each in parts], np.bool_)
    columns: list[pa.Array[Any]] = []
    for place, shape in enumerate(shapes):
        held = [(each if len(each) == len(shapes) else none)[place] for each in parts]
        column, wrong = _encoded(held, shape)
        columns.append(column)
        if wrong is not None:
            misfits |= wrong
    return columns, misfits


def _encoded(values: Any, shape: Shape) -> tuple[pa.Array[Any], npt.NDArray[np.bool_] | None]:
    """The column, and where it does not represent the values exactly, if anywhere."""
    if isinstance(values, pa.Array):
        if values.type == shape.arrow_type and shape == _PLAIN.get(values.type):
            return values, None
        values = values.to_pylist()
    try:
        return shape.encode(values), None
    except Misfit:
        misfits = np.array([not _fits(shape, value) for value in values])
    fitting = [None if bad else value for value, bad in zip(values, misfits, strict=True)]
    return shape.encode(fitting), misfits


def _fits(shape: Shape, value: Any) -> bool:
    try:
        shape.encode([value])
    except Misfit:
        return False
    return True


def _pickled(
    entries: Entries,
    form: TableForm,
    key_misfits: npt.NDArray[np.bool_] | None,
    value_misfits: npt.NDArray[np.bool_] | None,
) -> pa.Array[Any]:
    assert isinstance(form.value, Shape)
    is_exact = form.value.is_exact and (not isinstance(form.key, Shape) or form.key.is_exact)
    if is_exact and key_misfits is None and value_misfits is None:
        return pa.nulls(len(entries), pa.large_binary())
    chosen = np.full(len(entries), not is_exact)
    for misfits in (key_misfits, value_misfits):
        if misfits is not None:
            chosen |= misfits
    keys = entries.keys.values() if isinstance(entries.keys, KeyColumns) else entries.keys
    rows = zip(keys, _as_list(entries.values), chosen.tolist(), strict=True)
    pickled = [pickle.dumps((key, value), 5) if bad else None for key, value, bad in rows]
    return pa.array(pickled, pa.large_binary())


def chunk_of_table(rows: pa.RecordBatch, form: TableForm, groups: Runs) -> StateChunk:
    entries = entries_of_table(rows, form, groups)
    if isinstance(entries.values, pa.RecordBatch):
        assert isinstance(entries.keys, KeyColumns)
        names = key_names(len(entries.keys.columns), is_tuple=entries.keys.is_tuple)
        columns = [*entries.keys.columns, *entries.values.columns]
        payload = to_bytes(columns, [*names, *entries.values.schema.names])
        return StateChunk(form.metadata.name, groups, payload)
    if isinstance(entries.keys, KeyColumns):
        keys = stored_columns(entries.keys)
    else:
        keys = pickled_keys(entries.keys)
    return chunk_of(form.metadata.name, groups, keys, entries.values)


def entries_of_table(rows: pa.RecordBatch, form: TableForm, groups: Runs) -> Entries:
    keys = form.decoded_keys(rows.column(KEY))
    if form.window is not None and isinstance(keys, list):
        decoded = [
            shape.decode(rows.column(name))
            for name, shape in zip(form.window_names, form.window, strict=True)
        ]
        keys = [window_key(key, *(part[row] for part in decoded)) for row, key in enumerate(keys)]
    if not isinstance(form.value, Shape):
        columns = [_from_portable(rows.column(f.name), f.type) for f in form.value]
        return Entries(groups, keys, pa.RecordBatch.from_arrays(columns, names=form.value.names))
    column, pickled = rows.column(form.value_name), rows.column(PICKLED)
    if pickled.null_count == len(pickled) and form.value == _PLAIN.get(column.type):
        return Entries(groups, keys, column)
    values = form.value.decode(column)
    if pickled.null_count < len(pickled):
        for position, exact in enumerate(pickled.to_pylist()):
            if exact is not None:
                key, values[position] = pickle.loads(exact)
                if isinstance(keys, list):
                    keys[position] = key
    return Entries(groups, keys, values)


def _as_list(values: Any) -> list[Any]:
    found: list[Any] = values if isinstance(values, list) else values.to_pylist()
    return found


def _described(shape: Shape | pa.Schema) -> Any:
    if isinstance(shape, Shape):
        return {"shape": shape.document()}
    return {"columns": base64.b64encode(shape.serialize().to_pybytes()).decode()}


def _recalled_window(documents: Any) -> tuple[Shape, ...] | None:
    return None if documents is None else tuple(map(shape_of_document, documents))


def _recalled(document: Any) -> Shape | pa.Schema:
    if "shape" in document:
        return shape_of_document(document["shape"])
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["columns"])))


def _portable_type(kind: pa.DataType) -> pa.DataType:
    """The type of `_portable` columns for this type."""
    is_ = pa.types
    if isinstance(kind, pa.DictionaryType):
        return _portable_type(kind.value_type)
    if is_.is_decimal256(kind) or is_.is_string_view(kind):
        return pa.large_string()
    if is_.is_binary_view(kind):
        return pa.large_binary()
    if is_.is_float16(kind):
        return pa.float32()
    if is_.is_duration(kind) or is_.is_time64(kind):
        return pa.int64()
    if is_.is_time32(kind):
        return pa.int32()
    if isinstance(kind, pa.TimestampType) and kind.unit == "ns":
        return pa.int64()  # Spark's times have microseconds
    return kind


def _portable(column: pa.Array[Any]) -> pa.Array[Any]:
    """The column in a type that Spark reads from Parquet."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = _portable_type(column.type)
    if kind == column.type:
        return column
    return column.view(kind) if kind in _TICKS else column.cast(kind)


def _from_portable(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """The column in its original type, without loss."""
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    if column.type == kind:
        return column
    return column.view(kind) if column.type in _TICKS else column.cast(kind)
