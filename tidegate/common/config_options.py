"""User-defined options, declared as in PyFlink.

retries = ConfigOptions.key("my.retries").int_type().default_value(3)
configuration.get(retries)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.core.options import BOOLEAN, TEXT, Kind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[T]):
    """A key with the type and the default of its values."""

    key: str
    kind: Kind[T]
    default: T | None = None


class ConfigOptions:
    """Starts the declaration of an option."""

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Start the declaration of an option with this key."""
        return ConfigOptions.OptionBuilder(key)

    @dataclass(frozen=True, slots=True)
    class OptionBuilder:
        """A key without a type so far."""

        key: str

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            return ConfigOptions.TypedConfigOptionBuilder(self.key, BOOLEAN)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            return ConfigOptions.TypedConfigOptionBuilder(self.key, Kind("integer", int))

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            return self.int_type()

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            return ConfigOptions.TypedConfigOptionBuilder(self.key, Kind("number", float))

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            return self.float_type()

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            return ConfigOptions.TypedConfigOptionBuilder(self.key, TEXT)

    @dataclass(frozen=True, slots=True)
    class TypedConfigOptionBuilder(Generic[T]):
        """A key with a type, without a default so far."""

        key: str
        kind: Kind[T]

        def default_value(self, value: T) -> ConfigOption[T]:
            return ConfigOption(self.key, self.kind, value)

        def no_default_value(self) -> ConfigOption[T]:
            return ConfigOption(self.key, self.kind)
