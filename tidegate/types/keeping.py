"""Whether a function could keep an object until it is called again."""

from __future__ import annotations

import builtins
import dis
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from itertools import pairwise
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from tidegate.types.privacy import ATOMIC

_LASTING: Final = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_PLAIN_MODULES: Final = ("json", "math")
_READS: Final = ("LOAD_ATTR", "LOAD_METHOD")
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
    returns. A method may read attributes of its object, as long as that `holds_nothing`.
    """
    if isinstance(function, type | BuiltinFunctionType):
        return function in _PLAIN_BUILTINS
    if type(function) is MethodType:
        plain, owner = function.__func__, function.__self__
        has_plain_access = type(owner).__getattribute__ is object.__getattribute__
        return (
            type(plain) is FunctionType
            and has_plain_access
            and holds_nothing(function)
            and _keeps_nothing(plain, set(), owner)
        )
    return type(function) is FunctionType and _keeps_nothing(function, set())


def holds_nothing(function: Any) -> bool:
    """Whether the object of a method holds nothing that can change; of a function always."""
    if type(function) is not MethodType:
        return True
    attributes = getattr(function.__self__, "__dict__", None)
    return attributes is not None and ATOMIC.issuperset(map(type, attributes.values()))


def _keeps_nothing(
    function: FunctionType, seen: set[FunctionType], owner: object | None = None
) -> bool:
    seen.add(function)
    has_cells = function.__closure__ or function.__defaults__ or function.__kwdefaults__
    code = function.__code__
    if has_cells or code.co_flags & _LASTING or vars(function):
        return False
    if owner is not None and not _only_reads_attributes(code, owner):
        return False
    own = frozenset(vars(owner) if owner is not None else ())
    return _stays_inside(code, function, seen, own)


def _only_reads_attributes(code: CodeType, owner: object) -> bool:
    """Whether a method uses its object for nothing but to read attributes of its own."""
    if not code.co_argcount or code.co_varnames[0] in code.co_cellvars:
        return False
    itself = code.co_varnames[0]
    for instruction, following in pairwise(dis.get_instructions(code)):
        found = instruction.argval if instruction.opcode in dis.haslocal else None
        if isinstance(found, tuple) and itself in found:  # one instruction loads two variables
            return False
        if found == itself:
            name = following.argval
            is_own = name in vars(owner) and not hasattr(type(owner), name)
            if following.opname != "LOAD_ATTR" or not is_own:
                return False
    return True


def _stays_inside(
    code: CodeType, function: FunctionType, seen: set[FunctionType], own: frozenset[str]
) -> bool:
    for instruction, following in pairwise(dis.get_instructions(code)):
        name = instruction.argval
        if instruction.opcode not in dis.hasname:
            continue
        if name.startswith("_") and name not in own:
            return False
        if instruction.opname == "LOAD_GLOBAL":
            value = function.__globals__.get(name, vars(builtins).get(name))
            read = following.argval if following.opname in _READS else None
            if not _is_harmless(name, value, read, seen):
                return False
        elif instruction.opname not in _READS:
            return False
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return all(_stays_inside(part, function, seen, own) for part in inner)


def _is_harmless(name: str, value: Any, read: str | None, seen: set[FunctionType]) -> bool:
    """Whether nothing can be kept in a global value, of which an attribute may be `read`."""
    if isinstance(value, type | BuiltinFunctionType):
        return value in _PLAIN_BUILTINS
    if isinstance(value, ModuleType):
        found = None if read is None else getattr(value, read, value)
        return value.__name__ in _PLAIN_MODULES and not isinstance(found, ModuleType | None)
    # A name bound by a `def` is assumed to stay bound to it.
    is_own = type(value) is FunctionType and value.__name__ == name and read is None
    return is_own and (value in seen or _keeps_nothing(value, seen))
