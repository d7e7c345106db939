"""Every public class and method that a program can import says what it does."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

from tidegate import datastream

MODULES = (
    "tidegate",
    "tidegate.common",
    "tidegate.datastream",
    "tidegate.datastream.connectors",
    "tidegate.datastream.functions",
    "tidegate.datastream.state",
    "tidegate.errors",
)


def public_classes():
    for module in map(import_module, MODULES):
        for name in getattr(module, "__all__", dir(module)):
            found = getattr(module, name)
            # What only wraps Java says so when it is used.
            is_ours = getattr(found, "__module__", "").startswith("tidegate")
            if inspect.isclass(found) and is_ours and "java_only" not in found.__module__:
                yield found


def public_methods(owner):
    for name in dir(owner):
        found = inspect.getattr_static(owner, name)
        function = getattr(found, "__func__", getattr(found, "fget", found))
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, found if isinstance(found, property) else getattr(owner, name)


def test_every_public_class_and_method_has_a_docstring():
    silent = {
        f"{owner.__module__}.{owner.__qualname__}.{name}"
        for owner in public_classes()
        for name, found in [("", owner), *public_methods(owner)]
        if not inspect.getdoc(found)
    }
    assert sorted(silent) == []


def test_type_checkers_do_not_take_every_name_for_a_method():
    """As they would if they saw `__getattr__`: then `stream.flatmap(f)` would be no mistake."""
    for file in Path(datastream.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text())
        hidden = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "not TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        seen = [each for each in functions if each.name == "__getattr__" and each not in hidden]
        assert not seen, file
