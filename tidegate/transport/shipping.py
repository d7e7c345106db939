"""Ships a program to the slots: operators, classes of the main module, local modules.

Functions and classes that a slot cannot import (of `__main__`, of a notebook, of another function)
are shipped by value, once, with the job. In every process, these classes are then found in the
module `MAIN_MODULE`, so that records and state refer to them by name and contain no code.
"""

from __future__ import annotations

import io
import pickle
import sys
import sysconfig
import types
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import cloudpickle

from tidegate.core.errors import NotSerializable, TidegateError
from tidegate.core.ids import JobId, OperatorId
from tidegate.graph.job_graph import JobGraph
from tidegate.operators.base import Operator
from tidegate.transport.wire import this_machine

MAIN_MODULE = "__tidegate_main__"
_HEAP_TYPE = 1 << 9
"""The flag of classes defined in Python; others come from an extension module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPackage:
    """A job as a slot receives it."""

    job_id: JobId
    graph: JobGraph
    """The skeleton: its operators are in `operators`."""
    operators: dict[OperatorId, bytes]
    settings: Mapping[str, Any]

    def operator(self, operator_id: OperatorId) -> Operator:
        """A separate copy for each caller."""
        operator = cloudpickle.loads(self.operators[operator_id])
        assert isinstance(operator, Operator)
        return operator


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a class that a slot cannot import by the name that `name_of` returns.

    Classes without such a name are pickled by value. Loading such a pickle defines them again, so
    the classes of records are defined once, in one pickle for all.
    """

    def __init__(self, file: io.BytesIO, name_of: Callable[[type], str | None]) -> None:
        super().__init__(file, protocol=5)
        self._name_of = name_of

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and not _is_importable(obj):
            name = self._name_of(obj)
            if name is not None:
                return shipped_class, (name,)
        return super().reducer_override(obj)


def shipped_class(name: str) -> Any:
    return attrgetter(name)(_main_module())


def pack(
    job_id: JobId, graph: JobGraph, settings: Mapping[str, Any], *, to_other_processes: bool = True
) -> bytes:
    """Everything that a slot needs to run its share of the job.

    A slot of this process has the local modules already.

    Raises:
        NotSerializable: an operator contains something that cannot be pickled.
    """
    classes = _Classes()
    operators: dict[OperatorId, bytes] = {}
    vertices = []
    for vertex in graph.vertices:
        for chained in vertex.chain:
            operators[chained.operator_id] = _dump(
                chained.operator, f"operator {chained.name!r}", classes.note
            )
        bare = tuple(replace(chained, operator=None) for chained in vertex.chain)
        vertices.append(replace(vertex, chain=bare, source=None))
    skeleton = JobGraph(graph.name, tuple(vertices), graph.edges)
    package = JobPackage(
        job_id=job_id, graph=skeleton, operators=operators, settings=dict(settings)
    )
    body = _dump(package, "a key selector or partitioner of the job", classes.note)
    definitions = classes.define()
    _make_findable(classes.by_name)
    modules = _local_modules() if to_other_processes else None
    return pickle.dumps((definitions, modules, body), protocol=5)


def unpack(package: bytes, work_directory: Path) -> JobPackage:
    """Make the job's modules and classes importable in this process, and return the job."""
    definitions, modules, body = pickle.loads(package)
    if modules is not None:
        modules.install(work_directory)
    _adopt(cloudpickle.loads(definitions))
    job = cloudpickle.loads(body)
    assert isinstance(job, JobPackage)
    return job


class _Classes:
    """Collects the classes that a slot cannot import while the job is pickled."""

    def __init__(self) -> None:
        self.by_name: dict[str, type] = {}

    def note(self, cls: type) -> str | None:
        """The name of a class in `MAIN_MODULE`; None if another class of the job has it."""
        name = _public_name(cls)
        return name if self.by_name.setdefault(name, cls) is cls else None

    def define(self) -> bytes:
        """Pickle all of them by value, with those that they need."""

        def note_and_define(cls: type) -> None:
            self.note(cls)

        known = -1
        definitions = b""
        while known < len(self.by_name):
            known = len(self.by_name)
            definitions = _dump(dict(self.by_name), "a class of the job", note_and_define)
        return definitions


def _dump(value: object, what: str, name_of: Callable[[type], str | None]) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, name_of).dump(value)
    except TidegateError:
        raise
    except Exception as failure:
        raise NotSerializable(what, f"{type(failure).__name__}: {failure}") from failure
    return file.getvalue()


def _is_importable(cls: type) -> bool:
    if cls.__module__ in ("__main__", MAIN_MODULE):
        return False
    if not cls.__flags__ & _HEAP_TYPE:
        return True
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def _public_name(cls: type) -> str:
    return cls.__qualname__.replace("<locals>.", "")


def _main_module() -> types.ModuleType:
    if MAIN_MODULE not in sys.modules:
        sys.modules[MAIN_MODULE] = types.ModuleType(MAIN_MODULE)
        cloudpickle.register_pickle_by_value(sys.modules[MAIN_MODULE])
    return sys.modules[MAIN_MODULE]


def _make_findable(classes: dict[str, type]) -> None:
    """Let this process load what was pickled by reference to `MAIN_MODULE`."""
    for name, cls in sorted(classes.items()):
        *outer, last = name.split(".")
        owner: Any = _main_module()
        for part in outer:
            if not hasattr(owner, part):
                setattr(owner, part, types.SimpleNamespace())
            owner = getattr(owner, part)
        setattr(owner, last, cls)


def _adopt(classes: dict[str, type]) -> None:
    """Let this process pickle these classes by reference to `MAIN_MODULE`.

    Only in slots: in the driver, they keep their own module.
    """
    _make_findable(classes)
    for name, cls in classes.items():
        cls.__module__ = MAIN_MODULE
        cls.__qualname__ = name


def to_slot(message: object) -> bytes:
    """Pickle something for a slot that may contain records of the user's classes."""

    def name_of(cls: type) -> str | None:
        name = _public_name(cls)
        try:
            return name if shipped_class(name) is cls else None
        except AttributeError:
            return None

    return _dump(message, "a split of a source", name_of)


@dataclass(frozen=True, slots=True)
class _Modules:
    """The modules next to the user's script, and the driver's search path."""

    directory: str
    search_path: tuple[str, ...]
    machine: str
    archive: bytes

    def install(self, work_directory: Path) -> None:
        path, more = self.directory, self.search_path
        if self.machine != this_machine() or not Path(path).is_dir():
            path, more = str(work_directory / "modules"), ()
            with zipfile.ZipFile(io.BytesIO(self.archive)) as archive:
                archive.extractall(path)
        if path not in sys.path:
            sys.path.insert(0, path)
        sys.path.extend(entry for entry in more if entry not in sys.path)


def _local_modules() -> _Modules:
    directory = _program_directory()
    paths = tuple(sysconfig.get_paths().values())
    installed = [Path(path).resolve() for path in paths]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, module in sys.modules.copy().items():
            file = getattr(module, "__file__", None)
            if name.split(".")[0] in ("__main__", "tidegate") or not file or file[-3:] != ".py":
                continue
            if file.startswith(paths):
                continue
            path = Path(file).resolve()
            if path.is_relative_to(directory) and not any(map(path.is_relative_to, installed)):
                inner = Path(*name.split("."))
                is_package = path.name == "__init__.py"
                archive.write(path, inner / path.name if is_package else f"{inner}.py")
    search_path = tuple(str(Path(entry).resolve()) for entry in sys.path)
    return _Modules(str(directory), search_path, this_machine(), buffer.getvalue())


def _program_directory() -> Path:
    """Where imports of the main module start: its directory, or that of its package."""
    main = sys.modules["__main__"]
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if not file:
        return Path.cwd()
    depth = spec.name.count(".") if spec is not None else 0
    return Path(file).resolve().parents[depth]
