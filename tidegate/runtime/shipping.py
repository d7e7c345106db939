"""How a program reaches the slots: operators, classes of the main module, modules beside it.

Functions and classes that no slot could import (those of `__main__`, of a notebook, of another
function) travel by value, once, with the job. In every process these classes are then found in the
module `MAIN_MODULE`, so that records, and later state, refer to them by name and hold no code.
"""

from __future__ import annotations

import io
import pickle
import sys
import sysconfig
import types
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle

from tidegate.core.errors import NotSerializable, TidegateError
from tidegate.core.ids import JobId, OperatorId
from tidegate.graph.job_graph import JobGraph
from tidegate.operators.base import Operator
from tidegate.runtime.wire import this_machine

MAIN_MODULE = "__tidegate_main__"
_HEAP_TYPE = 1 << 9
"""The flag of classes that were made by Python code; others come with an extension module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPackage:
    """A job as a slot gets it."""

    job_id: JobId
    graph: JobGraph
    """The skeleton: its operators are in `operators`."""
    operators: dict[OperatorId, bytes]
    settings: Mapping[str, Any]

    def operator(self, operator_id: OperatorId) -> Operator:
        """A copy of its own for whoever asks."""
        operator = cloudpickle.loads(self.operators[operator_id])
        assert isinstance(operator, Operator)
        return operator


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Notes every class that it has to pickle by value."""

    def __init__(self, file: io.BytesIO, by_value: dict[str, type]) -> None:
        super().__init__(file, protocol=5)
        self._by_value = by_value

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and not _is_importable(obj):
            self._by_value.setdefault(_public_name(obj), obj)
        return super().reducer_override(obj)


def pack(job_id: JobId, graph: JobGraph, settings: Mapping[str, Any]) -> bytes:
    """Everything a slot needs to run its share of the job.

    Raises:
        NotSerializable: an operator holds something that cannot be pickled.
    """
    classes: dict[str, type] = {}
    operators: dict[OperatorId, bytes] = {}
    vertices = []
    for vertex in graph.vertices:
        for chained in vertex.chain:
            operators[chained.operator_id] = _dump(
                chained.operator, f"operator {chained.name!r}", classes
            )
        bare = tuple(replace(chained, operator=None) for chained in vertex.chain)
        vertices.append(replace(vertex, chain=bare, source=None))
    skeleton = JobGraph(graph.name, tuple(vertices), graph.edges)
    package = JobPackage(
        job_id=job_id, graph=skeleton, operators=operators, settings=dict(settings)
    )
    body = _dump(package, "a key selector or partitioner of the job", classes)
    _make_findable(classes)
    modules = _local_modules()
    contents = (_dump(classes, "a class of the job", {}), modules, body)
    return pickle.dumps(contents, protocol=5)


def unpack(package: bytes, work_directory: Path) -> JobPackage:
    """Make the job's modules and classes importable in this process and return the job."""
    classes, modules, body = pickle.loads(package)
    modules.install(work_directory)
    sys.modules.pop(MAIN_MODULE, None)
    _adopt(cloudpickle.loads(classes))
    job = cloudpickle.loads(body)
    assert isinstance(job, JobPackage)
    return job


def _dump(value: object, what: str, classes: dict[str, type]) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, classes).dump(value)
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
    return cls.__qualname__.rsplit("<locals>.", 1)[-1]


def _make_findable(classes: dict[str, type]) -> None:
    """Let this process read what was pickled by reference to `MAIN_MODULE`."""
    module = sys.modules.setdefault(MAIN_MODULE, types.ModuleType(MAIN_MODULE))
    for name, cls in classes.items():
        if "." not in name:
            setattr(module, name, cls)


def _adopt(classes: dict[str, type]) -> None:
    """Let this process pickle these classes by reference to `MAIN_MODULE`.

    Done in slots alone: in the driver they stay what the user knows them as.
    """
    _make_findable(classes)
    for name, cls in classes.items():
        cls.__module__ = MAIN_MODULE
        cls.__qualname__ = name


def to_slot(message: object) -> bytes:
    """Pickle something that the driver sends and that may hold records of the user's classes."""
    return bytes(cloudpickle.dumps(message, protocol=5))


@dataclass(frozen=True, slots=True)
class _Modules:
    """The modules beside the user's script."""

    directory: str
    machine: str
    archive: bytes

    def install(self, work_directory: Path) -> None:
        path = self.directory
        if self.machine != this_machine() or not Path(path).is_dir():
            path = str(work_directory / "modules")
            with zipfile.ZipFile(io.BytesIO(self.archive)) as archive:
                archive.extractall(path)
        if path not in sys.path:
            sys.path.insert(0, path)


def _local_modules() -> _Modules:
    main_file = getattr(sys.modules["__main__"], "__file__", None)
    directory = Path(main_file).resolve().parent if main_file else Path.cwd()
    installed = [Path(p).resolve() for p in sysconfig.get_paths().values()]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name.split(".")[0] in ("__main__", "tidegate") or not file or file[-3:] != ".py":
                continue
            path = Path(file).resolve()
            if path.is_relative_to(directory) and not any(map(path.is_relative_to, installed)):
                archive.write(path, path.relative_to(directory))
    return _Modules(str(directory), this_machine(), buffer.getvalue())
