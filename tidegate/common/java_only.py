"""PyFlink names that only wrap Java classes: they can be imported, but raise when used."""

from __future__ import annotations

from typing import Any, NoReturn

from tidegate.core.errors import GraphError


class JavaOnly(type):
    """The metaclass of such names: any use raises an error."""

    advice: str

    def __call__(cls, *arguments: Any, **named: Any) -> NoReturn:
        raise _refusal(cls.__name__, cls.advice)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _refusal(f"{cls.__name__}.{name}", cls.advice)


class _Refused(metaclass=JavaOnly):
    advice = ""

    def __init_subclass__(cls, *, is_name: bool = False, **named: Any) -> None:
        if not is_name:
            raise _refusal(f"a subclass of {cls.__mro__[1].__name__}", cls.advice)


def java_only(name: str, advice: str) -> Any:
    """A class of this name that raises when used, with advice."""
    return JavaOnly(name, (_Refused,), {"advice": advice}, is_name=True)


def _refusal(what: str, advice: str) -> GraphError:
    return GraphError(f"{what} is not available: in PyFlink it wraps Java code. {advice}")
