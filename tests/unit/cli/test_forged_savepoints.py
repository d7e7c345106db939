"""Savepoints that no job has written, with a checksum that fits: commands refuse them."""

import json
import struct

import pytest
from typer.testing import CliRunner
from xxhash import xxh3_64_intdigest

from tests.savepoints import stored, use
from tidegate.checkpoint.metadata import decode
from tidegate.cli.main import app
from tidegate.core.errors import CorruptCheckpoint
from tidegate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tidegate.state.operator_state import OperatorStateStore
from tidegate.storage.conformity import check_types
from tidegate.types.typeinfo import Types

HEADER = struct.Struct("<8sIQQ")
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
TYPE = Types.ROW_NAMED(["total"], [Types.LONG()])
WRONG = (None, -1, 1.5, True, "no such thing", [], {}, [[]])
PROGRAM = """
from tidegate.testing.environments import mini_environment
env = mini_environment(parallelism=1)
env.from_collection([1]).uid("numbers").key_by(str).sum().uid("others").print()
env.execute()
"""


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory):
    def fill(backend):
        total = backend.value_state(ValueStateDescriptor("total", TYPE))
        for key in range(50):
            if use(backend, key):
                total.update((3 * key,))

    store = OperatorStateStore()
    store.get_list_state(ListStateDescriptor("elements", Types.STRING())).add("one")
    return stored(
        tmp_path_factory.mktemp("savepoints") / "savepoint-aaaaaa-0b7e55aa41cd",
        {"totals": fill},
        parallelism=1,
        states={"totals": [store.freeze()]},
        splits={"totals": ["a split"]},
    )


def document_of(data):
    size = HEADER.unpack_from(data)[2]
    return json.loads(data[HEADER.size : HEADER.size + size])


def forged(data, document):
    """The same metadata with another document, and a checksum that fits."""
    magic, version, size, binary_size = HEADER.unpack_from(data)
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    binary = data[HEADER.size + size :][:binary_size]
    frame = HEADER.pack(magic, version, len(text), binary_size) + text + binary
    return frame + xxh3_64_intdigest(frame).to_bytes(8, "little")


def places_in(node, *path):
    yield path
    children = dict(enumerate(node)) if isinstance(node, list) else node
    for key, child in children.items() if isinstance(children, dict) else ():
        yield from places_in(child, *path, key)


def with_value(document, path, value):
    if not path:
        return value
    changed = json.loads(json.dumps(document))
    node = changed
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return changed


def test_every_value_of_another_type_is_refused_where_it_is_read(savepoint):
    data = (savepoint / "_metadata").read_bytes()
    document = document_of(data)
    accepted = []
    for path in places_in(document):
        for wrong in WRONG:
            try:
                found = decode(forged(data, with_value(document, path, wrong)), "there")
            except CorruptCheckpoint:
                continue
            accepted.append((path, wrong))
            check_types(found)
    kept = {path[-1]: [wrong for at, wrong in accepted if at == path] for path, _ in accepted}
    assert kept["job_name"] == kept["name"] == ["no such thing"]
    assert kept["parallelism"] == [-1]
    assert {"kind", "form", "redistribution", "checksum"}.isdisjoint(kept)


def test_a_document_that_is_nested_too_deeply_is_refused(savepoint):
    data = (savepoint / "_metadata").read_bytes()
    with pytest.raises(CorruptCheckpoint, match="RecursionError"):
        decode(forged(data, b"[" * 100_000), "there")


@pytest.fixture
def commands(tmp_path):
    job = tmp_path / "job.py"
    job.write_text(PROGRAM)
    path = str(tmp_path / "savepoint-bbbbbb-0b7e55aa41cd")
    return path, [
        ["state", "show", path],
        ["state", "diff", path, path],
        ["plan", path, str(job)],
        ["run", "--from", path, str(job)],
        ["savepoint", "--dispose", path],
    ]


def copied(savepoint, path, change):
    data = (savepoint / "_metadata").read_bytes()
    for file in savepoint.rglob("*"):
        if file.is_file():
            copy = type(savepoint)(path) / file.relative_to(savepoint)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    type(savepoint)(path, "_metadata").write_bytes(forged(data, change(document_of(data))))


def test_commands_refuse_it_in_a_sentence(savepoint, commands):
    path, all_commands = commands
    copied(savepoint, path, lambda document: {**document, "operators": [{"name": 3}]})
    for arguments in all_commands:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 6, done.output
        assert f"{path}/_metadata is corrupt" in done.output
        assert "Traceback" not in done.output


def with_escapes(node, key=None):
    """Every text that is free has an escape sequence at its end."""
    if isinstance(node, dict):
        return {name: with_escapes(child, name) for name, child in node.items()}
    if isinstance(node, list):
        return [with_escapes(child, key) for child in node]
    is_free = key in ("job_name", "job_id", "name", "uid", "declaration", "structure")
    return node + ESCAPE if is_free and isinstance(node, str) else node


def test_no_escape_sequence_of_a_savepoint_reaches_the_terminal(savepoint, commands):
    path, (show, diff, plan, run, _) = commands
    copied(savepoint, path, with_escapes)
    compared = ["state", "diff", str(savepoint), path]
    for arguments in (show, diff, plan, run, compared, [*show, "--json"], [*plan, "--json"]):
        done = CliRunner().invoke(app, arguments)
        assert not isinstance(done.exception, Exception), done.exception
        assert done.output
        assert not {"\x1b", "\x07"} & set(done.output), arguments
