"""Whether a function could keep an object until it is called again."""

from __future__ import annotations

import builtins
import dis
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from tidegate.types.privacy import ATOMIC

_LASTING: Final = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_PLAIN_MODULES: Final = ("json", "math")
_PLAIN_BUILTINS: Final = frozenset(
    {
        *ATOMIC,
        *(abs, all, any, ascii, bin, chr, divmod, format, hash, hex, isinstance, issubclass, len),
        *(max, min, oct, ord, pow, repr, round, sorted, sum),
        *(kind for kind in vars(builtins).values() if isinstance(kind, type)),
    }
)


def keeps_nothing(function: Any) -> bool:
    """Whether the function has nowhere to keep an object; False in case of doubt.

    It reaches only its arguments, which must not run user code when they are used
    (`Batch.is_inert`), and other functions of this kind. Nobody else can therefore refer to what it
    returns.
    """
    if isinstance(function, type | BuiltinFunctionType):
        return function in _PLAIN_BUILTINS
    return type(function) is FunctionType and _keeps_nothing(function, set())


def _keeps_nothing(function: FunctionType, seen: set[FunctionType]) -> bool:
    seen.add(function)
    has_cells = function.__closure__ or function.__defaults__ or function.__kwdefaults__
    lasts = function.__code__.co_flags & _LASTING
    if has_cells or lasts or vars(function):
        return False
    return _stays_inside(function.__code__, function, seen)


def _stays_inside(code: CodeType, function: FunctionType, seen: set[FunctionType]) -> bool:
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opcode not in dis.hasname:
            continue
        if name.startswith("_"):
            return False
        if instruction.opname == "LOAD_GLOBAL":
            value = function.__globals__.get(name, vars(builtins).get(name))
            if not _is_harmless(name, value, seen):
                return False
        elif instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            return False
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return all(_stays_inside(part, function, seen) for part in inner)


def _is_harmless(name: str, value: Any, seen: set[FunctionType]) -> bool:
    if isinstance(value, type | BuiltinFunctionType):
        return value in _PLAIN_BUILTINS
    if isinstance(value, ModuleType):
        return value.__name__ in _PLAIN_MODULES
    # A name bound by a `def` is assumed to stay bound to it.
    is_own = type(value) is FunctionType and value.__name__ == name
    return is_own and (value in seen or _keeps_nothing(value, seen))
