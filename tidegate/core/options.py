"""Settings as typed fields: key, kind, default and description in one place.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class RestartSettings:
        attempts: int = option("restart-strategy.fixed-delay.attempts", integer(1), 1, "How often.")

A kind converts what the user wrote (text from a file, a number, a timedelta) to the field's type.
If it cannot, it raises ValueError with advice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

from tidegate.core.durations import as_timedelta, format_duration
from tidegate.core.errors import ConfigError
from tidegate.core.memory_size import MemorySize

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How the values of an option are parsed and formatted."""

    name: str
    parse: Callable[[Any], T]
    format: Callable[[T], str] = str


@dataclass(frozen=True, slots=True)
class Option:
    key: str
    kind: Kind[Any]
    default: Any
    description: str
    older_keys: tuple[str, ...] = ()

    def parse(self, value: object, key: str | None = None) -> Any:
        """Parse a value; `key` is the user's spelling, for messages.

        Raises:
            ConfigError: the value is invalid.
        """
        try:
            return self.kind.parse(value)
        except (ValueError, TypeError) as error:
            raise ConfigError(key or self.key, value, str(error)) from None

    def format(self, value: Any) -> str:
        """The value as text that `parse` accepts."""
        return "" if value is None else self.kind.format(value)


def option(
    key: str, kind: Kind[Any], default: T, description: str, older_keys: tuple[str, ...] = ()
) -> T:
    """A dataclass field that is set by `key`; None as default means that it is not set."""
    # With a factory, dataclasses accept a mutable default; nothing changes it.
    return field(
        default_factory=lambda: default,
        metadata={"option": Option(key, kind, default, description, older_keys)},
    )


def options_of(group: Any) -> dict[str, Option]:
    """The options of a group, by field name."""
    return {f.name: f.metadata["option"] for f in fields(group) if "option" in f.metadata}


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("give a non-empty text")
    return value.strip()


def _parse_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("give true or false")


def _parse_map(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {str(key): str(entry) for key, entry in value.items()}
    if isinstance(value, str):
        pairs = [pair.partition(":") for pair in value.split(",") if pair.strip()]
        if all(separator for _, separator, _ in pairs):
            return {key.strip(): entry.strip() for key, _, entry in pairs}
    raise ValueError("give a dict, or text like 'key1:value1,key2:value2'")


def _parse_list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.replace(",", ";").split(";") if part.strip())
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise ValueError("give a list of texts, or text like 'one;two'")


def _parse_ports(value: Any) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return value
    first, _, last = str(value).partition("-")
    try:
        ports = tuple(range(int(first), int(last or first) + 1))
    except ValueError:
        ports = ()
    if not ports or not 0 <= ports[0] <= ports[-1] < 1 << 16:
        raise ValueError("give a port or a range of ports, like 50000-50100")
    return ports


TEXT = Kind("text", _parse_text)
PORTS = Kind("port range", _parse_ports, lambda ports: f"{ports[0]}-{ports[-1]}")
BOOLEAN = Kind("boolean", _parse_boolean, lambda value: str(value).lower())
MEMORY = Kind("memory size", MemorySize.parse)
MAP: Kind[dict[str, str]] = Kind(
    "map", _parse_map, lambda value: ",".join(f"{k}:{v}" for k, v in value.items())
)
LIST: Kind[tuple[str, ...]] = Kind("list", _parse_list, ";".join)


def integer(minimum: int, maximum: int | None = None) -> Kind[int]:
    """A whole number within the limits."""
    limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"

    def parse(value: Any) -> int:
        if isinstance(value, str):
            value = value.strip().replace("_", "")
            value = int(value) if value.lstrip("+-").isdigit() else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"give a whole number {limits}")
        if value < minimum or (maximum is not None and value > maximum):
            raise ValueError(f"give a whole number {limits}")
        return value

    return Kind("integer", parse)


def number(minimum: float, maximum: float | None = None) -> Kind[float]:
    """A number within the limits."""
    limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"

    def parse(value: Any) -> float:
        if isinstance(value, bool):
            raise ValueError(f"give a number {limits}")
        try:
            parsed = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"give a number {limits}") from None
        if not minimum <= parsed <= (parsed if maximum is None else maximum):
            raise ValueError(f"give a number {limits}")
        return parsed

    return Kind("number", parse)


def duration(minimum: timedelta = timedelta(0)) -> Kind[timedelta]:
    """A duration of at least `minimum`."""

    def parse(value: Any) -> timedelta:
        parsed = as_timedelta(value)
        if parsed < minimum:
            raise ValueError(f"give a duration of at least {format_duration(minimum)}")
        return parsed

    return Kind("duration", parse, format_duration)


def choice(members: type[E], spellings: Mapping[str, E] | None = None) -> Kind[E]:
    """A member of an enum, by value or name in any case, or by an alias."""
    known = {str(member.value): member for member in members}

    def plain(text: str) -> str:
        return text.strip().lower().replace("_", "-")

    accepted = {
        **{plain(member.name): member for member in members},
        **{plain(text): member for text, member in known.items()},
        **{plain(text): member for text, member in (spellings or {}).items()},
    }

    def parse(value: Any) -> E:
        if isinstance(value, members):
            return value
        found = accepted.get(plain(value)) if isinstance(value, str) else None
        # Enums of another layer with the same members are accepted, too.
        if found is None and isinstance(value, Enum):
            found = accepted.get(plain(value.name))
        if found is None:
            raise ValueError(f"give one of {', '.join(known)}")
        return found

    return Kind(" | ".join(known), parse, lambda member: str(member.value))
