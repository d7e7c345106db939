"""Who may import whom, how rooms stay small, and what crosses processes whole."""

import ast
import dataclasses
import importlib
import inspect
import pickle
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate
from tests.effort import examples
from tidegate import errors
from tidegate.protocol.messages import StepRequest
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.pointers import TableHandle

# A room imports from its own tier and from the tiers below it.
TIERS = (
    ("__main__",),
    ("cli",),
    ("verify", "savepoint"),
    ("datastream", "common", "errors", "metrics"),
    ("web",),
    ("driver",),
    ("slot",),
    ("exchange",),
    ("transport",),
    ("protocol",),
    ("graph",),
    ("operators",),
    ("connectors", "checkpoint"),
    ("state",),
    ("storage",),
    ("stream",),
    ("types",),
    ("prerequisites",),
    ("core",),
)
# The same inside a room: its modules and the rooms in it, tier by tier.
ROOMS = {
    "connectors": (
        ("kafka", "row_serialization"),
        ("postgres", "spark", "datagen", "json_serialization", "row_schemas", "sequence"),
        ("durable", "files", "callback", "collection", "socket"),
        ("driver_side", "splits"),
        ("sink", "source"),
        ("guarantee", "serialization"),
    ),
    "driver": (
        ("launch",),
        ("job_handle",),
        ("collectors",),
        ("job_master", "live_line"),
        ("closing", "inspections", "progress"),
        ("pipeline_driver", "slots"),
        ("checkpoints", "catching_up", "poison_counts", "split_enumerator", "upgrade_plan"),
        ("task_log",),
        ("chronicle", "cluster", "function_logs", "interrupts"),
    ),
    "operators": (
        ("joins",),
        ("aggregations", "async_io", "two_inputs", "windows"),
        ("endpoints", "keyed", "stateless"),
        ("batches", "event_time", "keyed_context", "poison", "results"),
        ("fusion", "unkeyed", "user_code"),
        ("checkpointed", "functions"),
        ("runtime_context",),
        ("base", "function_contexts", "output_tag"),
        ("accumulators", "metrics"),
    ),
    "protocol": (
        ("checkpoints", "pacing", "slot_machine", "watermark_groups"),
        ("messages", "input_gate", "job_status", "plan", "restart_strategy", "slot_pool", "units"),
        (
            "alignment",
            "arrivals",
            "assembly",
            "incarnation",
            "region",
            "restore",
            "watermark_valve",
        ),
        ("packet", "pickles"),
    ),
    "slot": (
        ("slot",),
        ("step_server",),
        ("pump_lines", "slot_host"),
        ("pipeline_host",),
        ("subtask",),
        ("outbox",),
        ("function_logs", "inspection", "restored_state", "snapshotter"),
    ),
    "state": (
        ("snapshot",),
        ("canonical", "backends"),
        ("rocksdb", "pointers", "redistribution"),
        ("memory", "operator_state"),
        ("columnar", "chunks", "evolution"),
        ("backend",),
        ("timers",),
        ("keys", "descriptors"),
        ("columns", "handles", "ttl"),
    ),
    "web": (
        ("server",),
        ("application",),
        ("api",),
        ("archive", "openapi"),
        ("endpoints", "hub"),
        ("operations", "served_jobs", "serving", "state_browser"),
        ("answers",),
        ("client", "documents", "log_files", "metrics", "requests"),
        ("allowed_paths", "forms", "live", "recent_logs", "registry"),
    ),
}
WRAPPERS = {("connectors/source.py", "tidegate.connectors.durable.source.DurableSource")}
"""What a contract offers to wrap its implementations in: the one way upwards inside a room."""
MOST_FILES = 20
PYFLINKS_MODULES = {"tidegate/common", "tidegate/datastream"}
"""Folders whose files are where PyFlink has them, however many that are."""
PUBLIC = ("common", "datastream", "errors", "metrics", "savepoint", "testing")
"""The rooms that programs import from, and the package itself."""
INTERNAL = ("tidegate.datastream.execution",)
MAY_IMPORT_PYSPARK = (
    "connectors/spark/dataframes.py",
    "connectors/spark/catalog.py",
    "connectors/spark/columns.py",
    "connectors/spark/stream.py",
    "connectors/spark/table.py",
    "connectors/spark/stream_batches.py",
    "datastream/environment.py",
    "datastream/execution/spark_session.py",
    "datastream/execution/warm_workers.py",
    "datastream/execution/worker_daemon.py",
    "driver/launch.py",
    "exchange/choice.py",
    "exchange/pipelined/exchange.py",
    "exchange/pipelined/self_test.py",
    "exchange/shuffle.py",
    "slot/slot.py",
    "savepoint/frames.py",
    "types/spark.py",
    "types/spark_versions.py",
)
MAY_IMPORT_THE_SLOT = ("driver/launch.py",)
PURE = ("protocol",)
IMPURE = ("asyncio", "os", "queue", "socket", "subprocess", "tempfile", "threading", "time")
"""What code that only decides has no use for: threads, sockets, files, clocks."""
ONLY_STANDARD_LIBRARY = ("prerequisites",)
SHELLS = ("driver/**/*.py", "slot/**/*.py", "testing/mini_cluster.py")
WITH_BODY = ast.ExceptHandler | ast.match_case
NOT_COMPARED = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
DECIDED_BY_THE_PROTOCOL = {
    *("attempt", "deployed", "epoch", "incarnation", "lease", "lease_seconds"),
}

PACKAGE = Path(tidegate.__file__).parent
HEIGHT = {room: -number for number, tier in enumerate(TIERS) for room in tier}


class Import(NamedTuple):
    """One imported name as it stands in a file: ``from a import b`` imports ``a.b``."""

    file: Path
    line: int
    importer: str
    imported: str
    for_types_only: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.imported}"


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def statements_in(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement, those inside other ones too."""
    for statement in body:
        yield statement
        for inner in vars(statement).values():
            if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt | WITH_BODY):
                for each in inner:
                    yield from statements_in(each.body if isinstance(each, WITH_BODY) else [each])


@cache
def imports_of(package: Path) -> tuple[Import, ...]:
    """Every import below a package folder, those inside functions too."""
    return tuple(_imports_of(package))


def _imports_of(package: Path) -> Iterator[Import]:
    for file in sorted(package.rglob("*.py")):
        relative = file.relative_to(package)
        importer = ".".join((package.name, *relative.with_suffix("").parts))
        statements = list(statements_in(tree_of(file).body))
        for_types_only = {
            inner
            for node in statements
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for inner in statements_in(node.body)
        }
        for node in statements:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                yield Import(relative, node.lineno, importer, name, node in for_types_only)


def room_of(module: str) -> str:
    """The room of ``tidegate.room.anything``; "" for what stands in the package itself."""
    rooms = module.split(".")[1:2]
    return "" if rooms in ([], ["__init__"], ["__version__"]) else rooms[0]


def breaches_of_the_import_order(package: Path) -> list[str]:
    breaches = []
    for found in imports_of(package):
        importer, imported = room_of(found.importer), room_of(found.imported)
        if found.imported.partition(".")[0] != "tidegate" or "" in (importer, imported):
            continue
        if "testing" in (importer, imported):
            continue
        unknown = next((room for room in (importer, imported) if room not in HEIGHT), None)
        if unknown is not None:
            breaches.append(f"{found}: give the room {unknown!r} its place in TIERS")
        elif HEIGHT[importer] < HEIGHT[imported]:
            breaches.append(f"{found}: {imported!r} stands above {importer!r}")
    return breaches


def breaches_inside_rooms(package: Path) -> list[str]:
    breaches = []
    for found in imports_of(package):
        room = room_of(found.importer)
        if room not in ROOMS or (found.file.as_posix(), found.imported) in WRAPPERS:
            continue
        if found.imported.split(".")[:2] != ["tidegate", room]:
            continue
        parts = [name.split(".")[2] for name in (found.importer, found.imported)]
        if parts[0] == parts[1] or "__init__" in parts:
            continue
        height = {part: -n for n, tier in enumerate(ROOMS[room]) for part in tier}
        unknown = next((part for part in parts if part not in height), None)
        if unknown is not None:
            breaches.append(f"{found}: give {unknown!r} its place in ROOMS[{room!r}]")
        elif height[parts[0]] < height[parts[1]]:
            breaches.append(f"{found}: {parts[1]!r} stands above {parts[0]!r}")
    return breaches


def crowded_folders(package: Path) -> list[str]:
    """A folder with more files than this hides rooms."""
    count = Counter(file.parent.relative_to(package.parent) for file in package.rglob("*.py"))
    return [
        f"{folder} has {n} files"
        for folder, n in sorted(count.items())
        if n > MOST_FILES and folder.as_posix() not in PYFLINKS_MODULES
    ]


def classes_defined_twice(package: Path) -> list[str]:
    homes: dict[str, list[str]] = {}
    for file in sorted(package.rglob("*.py")):
        for name in re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            homes.setdefault(name, []).append(file.relative_to(package).as_posix())
    return [
        f"{name} is defined in {' and '.join(files)}"
        for name, files in homes.items()
        if len(files) > 1
    ]


def imports_of_testing(package: Path) -> list[str]:
    return [
        str(found)
        for found in imports_of(package)
        if found.imported.startswith("tidegate.testing") and room_of(found.importer) != "testing"
    ]


def imports_of_the_slot(package: Path) -> list[str]:
    """The driver knows slots by their messages alone; only what launches them names their code."""
    return [
        str(found)
        for found in imports_of(package)
        if room_of(found.importer) == "driver"
        and room_of(found.imported) == "slot"
        and found.file.as_posix() not in MAY_IMPORT_THE_SLOT
    ]


def impure_imports(package: Path) -> list[str]:
    return [
        str(found)
        for found in imports_of(package)
        if room_of(found.importer) in PURE and found.imported.partition(".")[0] in IMPURE
    ]


def imports_of_pyspark_elsewhere(package: Path) -> list[str]:
    """Annotations may name Spark's classes anywhere: they import nothing when the code runs."""
    return [
        str(found)
        for found in imports_of(package)
        if found.imported.partition(".")[0] in ("pyspark", "py4j")
        and not found.for_types_only
        and found.file.as_posix() not in MAY_IMPORT_PYSPARK
    ]


def imports_beyond_the_standard_library(package: Path) -> list[str]:
    return [
        str(found)
        for found in imports_of(package)
        if room_of(found.importer) in ONLY_STANDARD_LIBRARY
        and found.imported.partition(".")[0] not in {*sys.stdlib_module_names, "tidegate"}
    ]


def decisions_of_shells(package: Path) -> list[str]:
    """Only the protocol decides who is current: no shell compares attempts or leases."""
    return [
        f"{file.relative_to(package)}:{node.lineno} compares {name!r}"
        for shells in SHELLS
        for file in sorted(package.glob(shells))
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], NOT_COMPARED)
        for name in sorted(DECIDED_BY_THE_PROTOCOL & names_in(node))
    ]


def names_in(node: ast.AST) -> set[str]:
    """The names and attributes in a piece of code, without underscores before them."""
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    found |= {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    return {name.lstrip("_") for name in found}


RULES = (
    breaches_of_the_import_order,
    breaches_inside_rooms,
    classes_defined_twice,
    crowded_folders,
    decisions_of_shells,
    imports_of_testing,
    imports_of_the_slot,
    impure_imports,
    imports_of_pyspark_elsewhere,
    imports_beyond_the_standard_library,
)


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(rule):
    assert rule(PACKAGE) == []


@pytest.mark.parametrize(
    ("rule", "file", "code", "breach"),
    [
        (
            breaches_of_the_import_order,
            "graph/chaining.py",
            "from tidegate.driver import launch",
            "graph/chaining.py:1 imports tidegate.driver.launch: 'driver' stands above 'graph'",
        ),
        (
            breaches_of_the_import_order,
            "core/ids.py",
            "def late():\n    import tidegate.state",
            "core/ids.py:2 imports tidegate.state: 'state' stands above 'core'",
        ),
        (
            breaches_of_the_import_order,
            "core/ids.py",
            "from tidegate import state",
            "core/ids.py:1 imports tidegate.state: 'state' stands above 'core'",
        ),
        (
            breaches_of_the_import_order,
            "attic/chest.py",
            "import tidegate.core.ids",
            "attic/chest.py:1 imports tidegate.core.ids: give the room 'attic' its place in TIERS",
        ),
        (
            breaches_inside_rooms,
            "state/keys/selection.py",
            "def late():\n    from tidegate.state.memory import tables",
            (
                "state/keys/selection.py:2 imports tidegate.state.memory.tables: "
                "'memory' stands above 'keys'"
            ),
        ),
        (
            breaches_inside_rooms,
            "web/attic.py",
            "from tidegate.web.server import RestServer",
            (
                "web/attic.py:1 imports tidegate.web.server.RestServer: "
                "give 'attic' its place in ROOMS['web']"
            ),
        ),
        (
            classes_defined_twice,
            "core/ids.py",
            "class JobId: ...\nclass JobId: ...",
            "JobId is defined in core/ids.py and core/ids.py",
        ),
        (
            imports_of_testing,
            "driver/launch.py",
            "from tidegate.testing import faults",
            "driver/launch.py:1 imports tidegate.testing.faults",
        ),
        (
            imports_of_the_slot,
            "driver/job_master.py",
            "from tidegate.slot import slot_host",
            "driver/job_master.py:1 imports tidegate.slot.slot_host",
        ),
        (
            impure_imports,
            "protocol/region.py",
            "def now():\n    import time",
            "protocol/region.py:2 imports time",
        ),
        (
            decisions_of_shells,
            "slot/slot_host.py",
            "def is_stale(self, key):\n    return self._host.attempt != key.attempt",
            "slot/slot_host.py:2 compares 'attempt'",
        ),
        (
            imports_of_pyspark_elsewhere,
            "operators/base.py",
            "if TYPE_CHECKING:\n    import pyspark\nelse:\n    from pyspark.sql import DataFrame",
            "operators/base.py:4 imports pyspark.sql.DataFrame",
        ),
        (
            imports_beyond_the_standard_library,
            "prerequisites/java.py",
            "import numpy",
            "prerequisites/java.py:1 imports numpy",
        ),
    ],
)
def test_a_breach_is_named_with_its_place(tmp_path, rule, file, code, breach):
    path = tmp_path / "tidegate" / file
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert rule(tmp_path / "tidegate") == [breach]


@pytest.mark.parametrize("rule", RULES)
def test_imports_downwards_are_no_breach(tmp_path, rule):
    path = tmp_path / "tidegate" / "driver" / "launch.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "import json\n"
        "import pyspark\n"
        "from tidegate import __version__\n"
        "from tidegate.core.ids import JobId\n"
        "from tidegate.slot import slot\n"
    )
    assert rule(tmp_path / "tidegate") == []


def test_a_folder_of_many_files_is_named(tmp_path):
    for number in range(MOST_FILES + 1):
        (tmp_path / f"part_{number}.py").touch()
    assert crowded_folders(tmp_path) == [f"{tmp_path.name} has {MOST_FILES + 1} files"]


def internal_imports(program: str) -> list[str]:
    """What a program imports from rooms that may change at any time."""
    found = []
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    return [
        name
        for name in found
        if name.startswith("tidegate.")
        and (room_of(name) not in PUBLIC or name.startswith(INTERNAL))
    ]


def public_programs() -> Iterator[tuple[str, str]]:
    root = PACKAGE.parent
    for file in sorted((root / "examples").rglob("*.py")):
        yield f"examples/{file.name}", file.read_text(encoding="utf-8")
    for page in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
        for number, block in enumerate(blocks):
            yield f"{page.name}, block {number}", block


def test_docs_and_examples_import_nothing_internal():
    breaches = {name: internal_imports(program) for name, program in public_programs()}
    assert len(breaches) > 30
    assert {name: found for name, found in breaches.items() if found} == {}


def test_an_internal_import_of_a_program_is_named():
    program = "import tidegate.core.ids\nfrom tidegate.errors import UserError\n"
    program += "def f():\n    from tidegate.datastream.execution.executor import Executor\n"
    assert internal_imports(program) == [
        "tidegate.core.ids",
        "tidegate.datastream.execution.executor",
    ]


def modules_with_all(package: Path) -> list[str]:
    files = [file for file in package.rglob("*.py") if "\n__all__ = " in file.read_text()]
    return sorted(
        ".".join((package.name, *file.relative_to(package).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for file in files
    )


def faults_of_all(module: ModuleType) -> list[str]:
    """Names that are promised but absent, or promised twice; ruff keeps their order (RUF022)."""
    promised: list[str] = module.__all__
    absent = [f"{name} does not exist" for name in promised if not hasattr(module, name)]
    return absent + [f"{name} stands twice" for name in set(promised) if promised.count(name) > 1]


@pytest.mark.parametrize("name", modules_with_all(PACKAGE))
def test_every_name_in_all_exists_once(name):
    assert faults_of_all(importlib.import_module(name)) == []


def test_a_fault_in_all_is_named():
    module = ModuleType("sample")
    module.__dict__.update(__all__=["absent", "twice", "twice"], twice=2)
    assert faults_of_all(module) == ["absent does not exist", "twice stands twice"]


def classes_in(module_name: str) -> list[type[Any]]:
    """The public classes a module defines itself."""
    module = importlib.import_module(module_name)
    return [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module_name and not name.startswith("_")
    ]


def instances_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Draw instances with arguments of the annotated types."""
    if cls.__init__ is Exception.__init__:
        return st.builds(cls, st.text())
    hints = {name: hint for name, hint in get_type_hints(cls.__init__).items() if name != "return"}
    anything = {name: st.integers() for name, hint in hints.items() if hint in (object, Any)}
    return st.builds(cls, **anything)


def survives_pickling(original: object) -> bool:
    """Whether the copy is equal, or looks equal where NaN or identity say it is not."""
    copy = pickle.loads(pickle.dumps(original))
    return type(copy) is type(original) and (copy == original or repr(copy) == repr(original))


def test_an_error_has_the_name_that_programs_import():
    named = {error.__name__ for error in classes_in("tidegate.errors")}
    assert named >= set(errors.__all__)


@pytest.mark.parametrize("error", classes_in("tidegate.errors"))
@examples(20)
@given(data=st.data())
def test_every_error_arrives_whole_in_another_process(error, data):
    original = data.draw(instances_of(error))
    copy = pickle.loads(pickle.dumps(original))
    assert survives_pickling(original)
    assert (copy.args, str(copy)) == (original.args, str(original))


MESSAGES = [
    cls for cls in classes_in("tidegate.protocol.messages") if dataclasses.is_dataclass(cls)
]
# Messages hold messages; without this their optional fields of any type would be drawn too.
st.register_type_strategy(StepRequest, instances_of(StepRequest))
st.register_type_strategy(TableHandle, st.builds(TableHandle, row_groups=st.just(())))
st.register_type_strategy(KeyGroupRange, st.integers(0, 9).map(lambda n: KeyGroupRange(n, 2 * n)))
st.register_type_strategy(float, st.floats(allow_nan=False))


@pytest.mark.parametrize("message", MESSAGES)
@examples(20)
@given(data=st.data())
def test_every_message_arrives_whole_in_another_process(message, data):
    assert survives_pickling(data.draw(instances_of(message)))
