"""Fuses a process function with the loop over its records: no call and no generator per record.

    def process_element(self, value, ctx):              for place, f0, f1 in turns:
        total = (self.total.value() or 0) + value[1]        total = (totals[place] or 0) + f1
        self.total.update(total)                    ──▶     totals[place] = total
        yield value[0], total                               results.append((f0, total))

A call, a generator and two accesses to state cost more than the rest of such a function. The loop
is compiled from the source of the function, which the driver reads and the slot verifies: unless it
compiles to exactly the code of the function, nothing is fused. Functions whose meaning the loop
could change are not fused, either. Tracebacks show the lines of the user's file.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import copy
import inspect
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Final, NamedTuple

from tidegate.state.memory.handles import HashMapValueState

Loop = Callable[..., None]
"""Called with the function object, its context, the backend, the turns, the lists of results and of
starts, and for each inlined state the list of its values."""

# A user's name contains no space.
_BACKEND: Final = "the backend"
_TURNS: Final = "the turns"
_RESULTS: Final = "the results"
_STARTS: Final = "the starts"
_PLACE: Final = "the place"
_FUTURES: Final = sum(
    {getattr(__future__, name).compiler_flag for name in __future__.all_feature_names}
)
_REFUSED_EXPRESSIONS: Final = (
    *(ast.Await, ast.Yield, ast.YieldFrom, ast.Lambda, ast.NamedExpr),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
_REFUSED_NAMES: Final = {"locals", "vars", "dir", "eval", "exec", "super", "__class__"}
"""What they return depends on the frame of the function."""


class MethodSource(NamedTuple):
    """The source of a method, as the driver has read it."""

    text: str
    first_line: int


def source_of(method: object) -> MethodSource | None:
    """The source of a method, if there is any."""
    if not isinstance(method, FunctionType):
        return None
    try:
        lines, first_line = inspect.getsourcelines(method)
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return None
    return MethodSource("".join(lines), first_line)


class LoopForm(NamedTuple):
    """What a loop gets, and what it keeps."""

    by_field: bool
    """Whether a turn holds the fields of a record instead of the record."""
    is_timed: bool
    """Whether a turn holds the timestamp of the record, for the context."""
    has_starts: bool
    """Whether the number of results before each record is kept."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """A function that can be fused, and what its loop needs.

    A turn is a tuple: the place of the key, the key if the loop `uses_key`, the timestamp if it
    `uses_context` and `is_timed`, then the `fields` or the record.
    """

    fields: tuple[int, ...] | None
    """The fields that the function reads; None if it needs the record itself."""
    uses_key: bool
    """Whether code outside the loop can ask for the current key or its state."""
    uses_context: bool
    states: tuple[str, ...]
    """The attributes of the function that hold inlined state."""
    _method: FunctionType
    _definition: ast.FunctionDef
    _loops: dict[LoopForm, Loop] = field(default_factory=dict)

    def fits(self, function: object) -> bool:
        """Whether the function object still has its state where it was when it was opened."""
        return all(_is_list(vars(function).get(name)) for name in self.states)

    def loop(self, form: LoopForm) -> Loop:
        """The loop of this form, compiled when it is needed for the first time."""
        if form not in self._loops:
            self._loops[form] = self._compiled(form)
        return self._loops[form]

    def _compiled(self, form: LoopForm) -> Loop:
        definition = copy.deepcopy(self._definition)
        me, value, context = (each.arg for each in definition.args.args)
        fields = self.fields if form.by_field else None
        rewriting = _Rewriting(me, None if fields is None else value, self.states)
        body = [rewriting.visit(statement) for statement in definition.body]
        targets: list[ast.expr] = [_name(_PLACE, ast.Store())]
        if self.uses_key:
            place = ast.Assign([_attribute(_BACKEND, "place", ast.Store())], _name(_PLACE))
            body.insert(0, place)
            if variables := self._method.__code__.co_varnames[3:]:
                # Objects may do something when they are released: at the end of a call.
                released = [_name(variable, ast.Store()) for variable in variables]
                body.insert(0, ast.Assign([*released], ast.Constant(None)))
            targets.append(_attribute(_BACKEND, "current_key", ast.Store()))
        if form.has_starts:
            count = ast.Call(_attribute(_RESULTS, "__len__"), [], [])
            body.insert(0, ast.Expr(ast.Call(_attribute(_STARTS, "append"), [count], [])))
        if self.uses_context and form.is_timed:
            targets.append(_attribute(context, "current", ast.Store()))
        read = [value] if fields is None else map(_field, fields)
        targets += [_name(each, ast.Store()) for each in read]
        definition.body = [ast.For(ast.Tuple(targets, ast.Store()), _name(_TURNS), body, [])]
        names = [me, context, _BACKEND, _TURNS, _RESULTS, _STARTS, *map(_values, self.states)]
        definition.args.args = [ast.arg(name) for name in names]
        code = _compiled(definition, self._method)
        return FunctionType(code, self._method.__globals__, self._method.__name__)


def fusion_of(method: object, source: MethodSource | None, function: object) -> Fusion | None:
    """How to fuse a method of a function object with its loop; None if that is impossible.

    Every result must be a tuple that the type of the stream knows to be immutable.
    """
    if source is None or not isinstance(method, FunctionType):
        return None
    try:
        fusion = _fusion_of(method, source, function)
        # Where Python finds the loop too deep, the function may still be allowed.
        fusion.loop(LoopForm(by_field=True, is_timed=True, has_starts=True))
    except (_CannotBeFused, SyntaxError, ValueError, RecursionError):
        return None
    return fusion


def _fusion_of(method: FunctionType, source: MethodSource, function: object) -> Fusion:
    code = method.__code__
    definition = _definition(source, method)
    if code.co_argcount != 3 or code.co_freevars or code.co_cellvars:
        raise _CannotBeFused
    if any("__" in name for name in code.co_varnames):  # private, so not as in the source
        raise _CannotBeFused
    me, value, context = code.co_varnames[:3]
    _Path(set(code.co_varnames), {me, value, context}).follow(definition.body)
    uses = _Uses(me, value)
    for statement in definition.body:
        uses.visit(statement)
    if {me, context} & uses.assigned:
        raise _CannotBeFused
    states = uses.states_to_inline(function)
    builtin = set(vars(builtins)) - set(method.__globals__)
    strangers = uses.read - uses.assigned - builtin - {value}
    return Fusion(
        fields=None if value in uses.read | uses.assigned else tuple(sorted(uses.fields)),
        uses_key=bool(strangers or uses.attributes or uses.states - set(states)),
        uses_context=context in uses.read,
        states=states,
        _method=method,
        _definition=definition,
    )


def _definition(source: MethodSource, method: FunctionType) -> ast.FunctionDef:
    """The syntax tree of a method, which compiles to the code of the method."""
    # Lines and columns stay as they are, for tracebacks and docstrings.
    (scope,) = ast.parse(f"if True:\n{source.text}").body
    assert isinstance(scope, ast.If)
    (definition,) = scope.body
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        raise _CannotBeFused
    ast.increment_lineno(definition, source.first_line - 2)
    # They are no part of the code of the function.
    arguments = [ast.arg(each.arg) for each in definition.args.args]
    definition.args = ast.arguments([], arguments, None, [], [], None, [])
    definition.returns = None
    if _essence(_compiled(definition, method)) != _essence(method.__code__):
        raise _CannotBeFused
    return definition


def _compiled(definition: ast.FunctionDef, method: FunctionType) -> CodeType:
    """Compile a definition as that of the method: its class is a part of private names."""
    _, scope, *_ = [*reversed(method.__qualname__.split(".")), "_"]
    module = ast.parse(f"class {scope if scope.isidentifier() else '_'}: pass")
    (owner,) = module.body
    assert isinstance(owner, ast.ClassDef)
    owner.body = [definition]
    flags = method.__code__.co_flags & _FUTURES
    filename = method.__code__.co_filename
    tree = ast.fix_missing_locations(module)
    code: CodeType = compile(tree, filename, "exec", flags, dont_inherit=True)
    for _ in range(2):
        (code,) = (each for each in code.co_consts if isinstance(each, CodeType))
    return code


def _essence(code: CodeType) -> tuple[object, ...]:
    """Everything in a code object that decides what it does."""
    constants = [(type(each), repr(each)) for each in code.co_consts]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    flags = code.co_flags & ~inspect.CO_NESTED  # set in classes within functions
    return (code.co_code, code.co_exceptiontable, flags, constants, names, arguments)


class _CannotBeFused(Exception):
    """A statement or an expression would mean something else in the loop."""


class _Path:
    """Follows the statements of a function: every variable must be set before it is read.

    A call starts without variables, but the loop would still have those of the record before.
    """

    def __init__(self, variables: set[str], known: set[str], *, is_inner: bool = False) -> None:
        self._variables = variables
        self._known = known
        self._is_inner = is_inner
        """Whether it is in a loop of the function, where `return` cannot become `continue`."""
        self._has_ended = False

    def follow(self, body: Sequence[ast.stmt]) -> _Path:
        for statement in body:
            self._step(statement)
        return self

    def _step(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                self._read(value)
                for target in targets:
                    self._set(target)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._read(value)
                self._known.add(name)
            case ast.AugAssign(target=target, value=value):
                self._read(value)
                if isinstance(target, ast.Name) and target.id not in self._known:
                    raise _CannotBeFused
                self._set(target)
            case ast.Expr(value=ast.Yield(value=ast.Tuple(elts=parts))):
                for part in parts:
                    if isinstance(part, ast.Starred):
                        raise _CannotBeFused
                    self._read(part)
            case ast.Expr(value=value):
                self._read(value)
            case ast.If(test=test, body=body, orelse=others):
                self._read(test)
                ways = [self._branch().follow(way) for way in (body, others)]
                open_ways = [way._known for way in ways if not way._has_ended]
                self._has_ended = not open_ways
                self._known = set.intersection(*open_ways) if open_ways else self._known
            case ast.For(target=target, iter=iterated, body=body, orelse=[]):
                self._read(iterated)
                inner = self._branch(is_inner=True)
                inner._set(target)
                inner.follow(body)
            case ast.While(test=test, body=body, orelse=[]):
                self._read(test)
                self._branch(is_inner=True).follow(body)
            case ast.Return(value=None) if not self._is_inner:
                self._has_ended = True
            case ast.Break() | ast.Continue():
                self._has_ended = True
            case ast.Raise() | ast.Assert():
                self._read(statement)
                self._has_ended = isinstance(statement, ast.Raise)
            case ast.Pass():
                pass
            case _:
                raise _CannotBeFused

    def _branch(self, *, is_inner: bool = False) -> _Path:
        return _Path(self._variables, set(self._known), is_inner=is_inner or self._is_inner)

    def _set(self, target: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                self._known.add(name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._set(part)
            case ast.Attribute(value=owner):
                self._read(owner)
            case ast.Subscript(value=owner, slice=index):
                self._read(owner)
                self._read(index)
            case _:
                raise _CannotBeFused

    def _read(self, node: ast.AST) -> None:
        for each in ast.walk(node):
            match each:
                case ast.Name(id=name) if name in _REFUSED_NAMES:
                    raise _CannotBeFused
                case ast.Name(id=name) if name in self._variables and name not in self._known:
                    raise _CannotBeFused
            if isinstance(each, _REFUSED_EXPRESSIONS):
                raise _CannotBeFused


def _is_list(state: object) -> bool:
    """Whether a state is nothing but a list of values by place."""
    return type(state) is HashMapValueState


def _state_call(node: ast.expr, me: str) -> tuple[str, str, list[ast.expr]] | None:
    """Attribute, method and arguments of a call such as `self.total.update(1)`."""
    match node:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Attribute(value=ast.Name(id=name), attr=attribute), attr=method
            ),
            args=arguments,
            keywords=[],
        ) if name == me and (method, len(arguments)) in {("value", 0), ("update", 1), ("clear", 0)}:
            is_plain = not any(isinstance(argument, ast.Starred) for argument in arguments)
            return (attribute, method, arguments) if is_plain else None
    return None


class _Uses(ast.NodeVisitor):
    """What a function uses, and how."""

    def __init__(self, me: str, value: str) -> None:
        self._me = me
        self._value = value
        self.read: set[str] = set()
        self.assigned: set[str] = set()
        self.fields: set[int] = set()
        """Fields of the record; other uses of the record are in `read`."""
        self.states: set[str] = set()
        """Attributes of the function object of which only methods of ValueState are called."""
        self.attributes: set[str] = set()
        """All its other attributes."""

    def states_to_inline(self, function: object) -> tuple[str, ...]:
        """Those that hold values in a list, if nothing can replace them while the loop runs."""
        kind, own = type(function), vars(function)
        if (
            self._me in self.read
            or kind.__getattribute__ is not object.__getattribute__
            or kind.__setattr__ is not object.__setattr__
            or any(hasattr(kind, attribute) for attribute in self.attributes | self.states)
        ):
            return ()
        states = sorted(self.states - self.attributes)
        return tuple(name for name in states if _is_list(own.get(name)))

    def visit_Expr(self, node: ast.Expr) -> None:
        self._use(_state_call(node.value, self._me), node.value)

    def visit_Call(self, node: ast.Call) -> None:
        call = _state_call(node, self._me)
        # Elsewhere, the loop would need the value of an assignment.
        self._use(call if call is not None and call[1] == "value" else None, node)

    def _use(self, call: tuple[str, str, list[ast.expr]] | None, node: ast.expr) -> None:
        if call is not None:
            state, _, arguments = call
            self.states.add(state)
            for argument in arguments:
                self.visit(argument)
        elif isinstance(node, ast.Call):
            self.generic_visit(node)
        else:
            self.visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == self._me:
            self.attributes.add(node.attr)
        else:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if (position := _field_read(node, self._value)) is not None:
            self.fields.add(position)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        (self.read if isinstance(node.ctx, ast.Load) else self.assigned).add(node.id)


class _Rewriting(ast.NodeTransformer):
    """Turns the statements of a function into those of a loop."""

    def __init__(self, me: str, value: str | None, states: Sequence[str]) -> None:
        self._me = me
        self._value = value
        """The record, if its fields are variables."""
        self._states = states

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        return ast.copy_location(ast.Continue(), node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        value = node.value
        if isinstance(value, ast.Yield):
            assert value.value is not None
            append = ast.copy_location(_attribute(_RESULTS, "append"), node)
            return self._statement(ast.Call(append, [self.visit(value.value)], []), node)
        call = _state_call(value, self._me)
        if call is None or call[0] not in self._states or call[1] == "value":
            return self._statement(self.visit(value), node)
        stored = self.visit(call[2][0]) if call[2] else ast.Constant(None)
        assigned = ast.Assign([self._at_place(call[0], ast.Store())], stored)
        return ast.copy_location(assigned, node)

    def _statement(self, value: ast.expr, node: ast.Expr) -> ast.stmt:
        return ast.copy_location(ast.Expr(ast.copy_location(value, node)), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        call = _state_call(node, self._me)
        if call is not None and call[0] in self._states:
            return ast.copy_location(self._at_place(call[0], ast.Load()), node)
        self.generic_visit(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        position = None if self._value is None else _field_read(node, self._value)
        if position is not None:
            return ast.copy_location(_name(_field(position)), node)
        self.generic_visit(node)
        return node

    def _at_place(self, state: str, context: ast.expr_context) -> ast.Subscript:
        return ast.Subscript(_name(_values(state)), _name(_PLACE), context)


def _field_read(node: ast.Subscript, value: str) -> int | None:
    """The field that is read, if the expression is such as `value[1]`."""
    match node:
        case ast.Subscript(
            value=ast.Name(id=name), slice=ast.Constant(value=int() as position), ctx=ast.Load()
        ) if name == value and type(position) is int and position >= 0:
            return position
    return None


def _field(position: int) -> str:
    return f"field {position}"


def _values(state: str) -> str:
    return f"values of {state}"


def _name(name: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(name, context or ast.Load())


def _attribute(owner: str, name: str, context: ast.expr_context | None = None) -> ast.Attribute:
    return ast.Attribute(_name(owner), name, context or ast.Load())
