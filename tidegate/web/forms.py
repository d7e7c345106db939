"""Documents as dataclasses: one declaration defines the JSON, its schema, and the validation.

The class determines the JSON names of fields (`records-in`, `recordsIn`, `records_in`), unless
`named` sets one. Text next to a type, `Annotated[int, "In bytes."]`, describes a field.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, dataclass_transform

Schema = dict[str, Any]
F = TypeVar("F", bound="Form")


class Absent(Enum):
    """Stands for a field that is missing from the document."""

    ABSENT = auto()


ABSENT = Absent.ABSENT


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """The allowed range of a number."""

    least: int
    greatest: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression that a text must match completely."""

    expression: str


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """The allowed texts, where a `Literal` cannot list them."""

    choices: tuple[str, ...]


Id = Annotated[str, Pattern("[0-9a-f]{32}")]


def kebab(name: str) -> str:
    return name.replace("_", "-")


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


def snake(name: str) -> str:
    return name


def named(name: str, *, default: Any = dataclasses.MISSING) -> Any:
    """A field with another name in JSON."""
    return dataclasses.field(default=default, metadata={"name": name})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(named,))
class Form:
    """A JSON object. Subclasses are frozen dataclasses; inherited fields keep their names."""

    _names: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Attributes and their JSON names."""

    def __init_subclass__(cls, naming: Callable[[str], str] = kebab) -> None:
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        inherited = dict(cls._names)
        cls._names = tuple(
            (
                field.name,
                field.metadata.get("name") or inherited.get(field.name) or naming(field.name),
            )
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        )


class NotOfForm(Exception):
    """A document does not match its form; the message says why."""


def as_document(value: Any) -> Any:
    """Convert a form to what `json.dumps` accepts."""
    if isinstance(value, Form):
        found = ((name, getattr(value, attribute)) for attribute, name in value._names)
        return {name: as_document(each) for name, each in found if each is not ABSENT}
    if isinstance(value, dict):
        return {key: as_document(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_document(each) for each in value]
    return value


# --- schemas ------------------------------------------------------------------------------------

_PLAIN: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def schema_of(kind: Any) -> Schema:
    """The JSON schema of an answer of this type."""
    return _schema_of(kind, is_answer=True)


def schema_of_body(form: type[Form]) -> Schema:
    """The JSON schema of a request: fields with a default may be absent or null."""
    return _schema_of(form, is_answer=False)


def _schema_of(kind: Any, *, is_answer: bool) -> Schema:
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if isinstance(kind, typing.NewType):
        return _schema_of(kind.__supertype__, is_answer=is_answer)
    if isinstance(kind, type) and issubclass(kind, Form):
        return _schema_of_form(kind, is_answer=is_answer)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        schema = _schema_of(arguments[0], is_answer=is_answer)
        for mark in arguments[1:]:
            schema |= _marked(mark)
        return schema
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        choices = [_schema_of(each, is_answer=is_answer) for each in arguments if each != Absent]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": _schema_of(arguments[0], is_answer=is_answer)}
    if origin in (dict, Mapping):
        values = _schema_of(arguments[1], is_answer=is_answer)
        return {"type": "object", "additionalProperties": values}
    raise TypeError(f"{kind} has no JSON representation")


def _schema_of_form(form: type[Form], *, is_answer: bool) -> Schema:
    properties, required = {}, []
    for field, name, kind in fields_of(form):
        properties[name] = _schema_of(kind, is_answer=is_answer)
        if (is_answer and field.default is not ABSENT) or not _has_default(field):
            required.append(name)
    schema: Schema = {"type": "object", "properties": properties, "required": required}
    return schema if is_answer else {**schema, "additionalProperties": False}


def _marked(mark: object) -> Schema:
    match mark:
        case str():
            return {"description": mark}
        case Between(least, greatest):
            return {"minimum": least, "maximum": greatest}
        case Pattern(expression):
            return {"pattern": f"^{expression}$"}
        case OneOf(choices):
            return {"enum": list(choices)}
    raise TypeError(f"{mark!r} has no JSON representation")


Fields = tuple[tuple[dataclasses.Field[Any], str, Any], ...]
_known: dict[type[Form], Fields] = {}


def fields_of(form: type[Form]) -> Fields:
    """The fields of a form with their JSON names and types."""
    if form not in _known:
        _known[form] = _fields_of(form)
    return _known[form]


def _fields_of(form: type[Form]) -> Fields:
    kinds = typing.get_type_hints(form, include_extras=True)
    names = dict(form._names)
    fields = dataclasses.fields(form)  # type: ignore[arg-type]
    return tuple((field, names[field.name], kinds[field.name]) for field in fields)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING


# --- what is sent to us -------------------------------------------------------------------------


def parsed(form: type[F], document: Any) -> F:
    """Parse a document; null fields count as absent.

    Raises:
        NotOfForm: it does not match the form.
    """
    if not isinstance(document, dict):
        raise NotOfForm("the body must be a JSON object")
    if typing.get_origin(form) is dict:
        return _checked("the body", document, form)  # type: ignore[no-any-return]
    names = [name for _, name, _ in fields_of(form)]
    for key in document:
        if key not in names:
            raise NotOfForm(f"there is no field {key!r}; expected: {', '.join(names)}")
    return _filled(form, {key: each for key, each in document.items() if each is not None})


def parsed_query(form: type[F], given: Mapping[str, str]) -> F:
    """Parse query parameters, which are text; unknown ones are ignored.

    Raises:
        NotOfForm: one does not match the form.
    """
    read = {
        name: _read(given[name], without_none(kind))
        for _, name, kind in fields_of(form)
        if name in given
    }
    return _filled(form, read)


def _filled(form: type[F], found: Mapping[str, Any]) -> F:
    values = {}
    for field, name, kind in fields_of(form):
        if name in found:
            values[field.name] = _checked(name, found[name], kind)
        elif not _has_default(field):
            raise NotOfForm(f"{name!r} is missing")
    return form(**values)


def without_none(kind: Any) -> Any:
    """The type of a field without None."""
    if typing.get_origin(kind) is Annotated:
        base, *marks = typing.get_args(kind)
        return Annotated[without_none(base), *marks]
    if typing.get_origin(kind) in (Union, types.UnionType):
        return next(each for each in typing.get_args(kind) if each is not type(None))
    return kind


def _read(text: str, kind: Any) -> Any:
    base = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    if base is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if base is int and re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    return text


def _checked(name: str, value: Any, kind: Any) -> Any:
    kind = without_none(kind)
    marks: tuple[Any, ...] = ()
    if typing.get_origin(kind) is Annotated:
        kind, *rest = typing.get_args(kind)
        marks = tuple(rest)
    origin = typing.get_origin(kind)
    if origin is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise NotOfForm(f"{name} = {_shown(value)}: give one of {', '.join(choices)}")
        return value
    if origin is list:
        if not isinstance(value, list):
            raise NotOfForm(f"{name} = {_shown(value)}: give a list")
        return [_checked(name, each, typing.get_args(kind)[0]) for each in value]
    if origin is dict and isinstance(value, dict):
        return {key: _checked(key, each, typing.get_args(kind)[1]) for key, each in value.items()}
    if isinstance(kind, type) and issubclass(kind, Form) and isinstance(value, dict):
        return parsed(kind, value)
    if type(value) is not kind:
        raise NotOfForm(f"{name} = {_shown(value)}: give {_WANTED.get(kind, 'an object')}")
    if kind is str and not value.isprintable():
        raise NotOfForm(f"{name} = {value!r}: give text that can be printed")
    for mark in marks:
        match mark:
            case Between(least, greatest) if not least <= value <= greatest:
                raise NotOfForm(f"{name} = {value}: give a number from {least} to {greatest}")
            case Pattern(expression) if re.fullmatch(expression, value) is None:
                raise NotOfForm(f"{name} = {value!r}: give text of the form {expression}")
    return value


_WANTED = {bool: "true or false", str: "text", int: "a whole number"}


def _shown(value: Any) -> str:
    return json.dumps(value)[:200]
