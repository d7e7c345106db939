"""`tidegate state`: savepoints shown and compared."""

import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.savepoints import stored
from tests.unit.savepoint.test_comparing import counts
from tests.unit.savepoint.test_reader import operator_states
from tidegate.cli.main import app
from tidegate.core.errors import UntrustedState
from tidegate.savepoint.trust import untrusted
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.state.operator_state import OperatorStateStore
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types


@pytest.fixture
def savepoint(tmp_path):
    values = {f"key {number}": number for number in range(30)}
    return stored(
        tmp_path / "savepoint",
        {"counts": counts(values, Types.LONG())},
        states={"counts": [operator_states(0), operator_states(1)]},
        splits={"counts": ["a file"]},
    )


def invoke(*arguments):
    return CliRunner().invoke(app, ["state", *map(str, arguments)])


def words(line):
    return line.split()


def test_operators_and_states_are_shown(savepoint):
    done = invoke("show", savepoint)
    assert done.exit_code == 0, done.output
    first, head, count, offsets, rules, split = done.output.splitlines()
    assert first == f"{savepoint}: savepoint 7 of job 'a job'"
    assert words(head)[:6] == ["operator", "name", "parallelism", "state", "kind", "type"]
    assert words(count)[:6] == ["counts", "the", "counts", "2", "of", "128"]
    assert words(count)[6:10] == ["count", "value", "Long", "30"]
    assert words(offsets)[:5] == ["offsets", "split", "list", "Long", "4"]
    assert words(rules)[:6] == ["rules", "broadcast", "map", "String", "to", "Long"]
    assert split == "counts, reader 0: 'a file'"


def test_one_document_for_machines(savepoint):
    document = json.loads(invoke("show", savepoint, "--json").output)
    assert (document["job"], document["kind"], document["id"]) == ("a job", "savepoint", 7)
    [operator] = document["operators"]
    assert operator["uid"] == "counts"
    assert operator["states"][0]["entries"] == 30
    assert document["source-positions"] == [{"uid": "counts", "subtask": 0, "split": "'a file'"}]


def test_entries_of_a_state_are_shown_up_to_a_limit(savepoint):
    done = invoke("show", savepoint, "--uid", "counts", "--state", "count", "--limit", 2)
    assert done.exit_code == 0, done.output
    head, *rows, last = done.output.splitlines()
    assert words(head) == ["key", "value"]
    assert len(rows) == 2
    assert last == "… the first 2; more with --limit"
    everything = invoke(
        "show", savepoint, "--uid", "counts", "--state", "count", "--limit", 99, "--json"
    )
    document = json.loads(everything.output)
    assert not document["has-more"]
    found = {entry["key"]: entry["value"] for entry in document["entries"]}
    assert found == {f"'key {number}'": f"{number}" for number in range(30)}


def test_elements_of_operator_state_are_shown(savepoint):
    done = invoke("show", savepoint, "--uid", "counts", "--state", "rules", "--json")
    assert json.loads(done.output)["entries"] == [
        {"subtask": "0", "element": "('limit', 5)"},
        {"subtask": "1", "element": "('limit', 5)"},
    ]


def test_what_is_not_there_is_a_sentence(savepoint, tmp_path):
    for arguments, text in (
        (["show", tmp_path / "none"], "there is no such directory, or it is empty"),
        (["show", savepoint, "--uid", "x"], "no operator with the uid 'x'; it has 'counts'"),
        (
            ["show", savepoint, "--uid", "counts", "--state", "x"],
            "no keyed state 'x'; it has 'count'",
        ),
        (["show", savepoint, "--uid", "x", "--state", "x"], "no operator with the uid 'x'"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == 1
        assert text in done.stderr
    assert invoke("show", savepoint, "--state", "count").exit_code == 2


def test_a_difference_is_shown_and_exits_with_one(savepoint, tmp_path):
    other = stored(tmp_path / "other", {"counts": counts({"key 0": 1}, Types.LONG())})
    done = invoke("diff", savepoint, other)
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines[:4] == [
        "operator counts",
        "  - state offsets",
        "  - state rules",
        "  state count: 0 added, 29 removed, 1 changed, 0 the same",
    ]
    assert lines[4] == "    ~ 'key 0': 0 → 1"
    assert len(lines) == 10
    document = json.loads(invoke("diff", savepoint, other, "--json").output)
    assert document["operators"][0]["states"][0]["removed"] == 29


def test_no_difference_exits_with_zero(savepoint):
    done = invoke("diff", savepoint, savepoint)
    assert (done.exit_code, done.output) == (0, "They have the same state.\n")


# --- savepoints of others -----------------------------------------------------------------------


class Bomb:
    """Leaves a trace in the file system of whoever loads it once it is armed."""

    is_armed = False

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return explode, (self.path,)


def explode(path):
    if Bomb.is_armed:
        path.mkdir(exist_ok=True)
    return Bomb(path)


@pytest.fixture
def mined(tmp_path, monkeypatch):
    """A savepoint with a bomb wherever there are pickled objects."""

    def states(number):
        store = OperatorStateStore()
        elements = ListStateDescriptor("elements", Types.PICKLED_BYTE_ARRAY())
        store.get_list_state(elements).add(Bomb(tmp_path / f"element {number}"))
        return store.freeze()

    values = {f"key {number}": Bomb(tmp_path / f"value {number}") for number in range(3)}
    path = stored(
        tmp_path / "savepoint",
        {"counts": counts(values, Types.PICKLED_BYTE_ARRAY())},
        states={"counts": [states(0), states(1)]},
        splits={"counts": [Bomb(tmp_path / "split")]},
    )
    monkeypatch.setattr(Bomb, "is_armed", True)
    return path


def test_a_savepoint_is_listed_without_running_anything_of_it(mined, tmp_path):
    for options in ((), ("--json",), ("--uid", "counts")):
        done = invoke("show", mined, *options)
        assert done.exit_code == 0, done.output
        assert "elements" in done.output
    invoke("diff", mined, mined)
    assert [path.name for path in tmp_path.iterdir()] == ["savepoint"]


@pytest.mark.parametrize("name", ["count", "elements"])
def test_pickled_values_are_loaded_only_where_they_are_trusted(mined, tmp_path, name):
    done = invoke("show", mined, "--uid", "counts", "--state", name)
    assert done.exit_code == 1
    assert "explode" in done.output
    assert "pass --trust" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["savepoint"]
    trusted = invoke("show", mined, "--uid", "counts", "--state", name, "--trust")
    assert trusted.exit_code == 0, trusted.output
    assert len(list(tmp_path.iterdir())) > 1


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("tidegate.slot.slot", "SlotTask"),
        ("tidegate.slot.slot", "shutil.rmtree"),
        ("tidegate.savepoint.trust", "importlib"),
        ("tidegate.storage.locations", "resolve"),
        ("tidegate.no_such_module", "Row"),
    ],
)
def test_what_could_act_is_not_trusted(module, name):
    stored = b"\x80\x04" + b"".join(
        b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name)
    )
    with untrusted(), pytest.raises(UntrustedState):
        pickle.loads(stored + b"\x93.")


def test_plain_values_need_no_trust():
    values = [Row(1, "a"), Decimal("1.5"), datetime(2020, 1, 1, tzinfo=UTC), {1, 2}, np.arange(3)]
    with untrusted():
        found = pickle.loads(pickle.dumps(values, 5))
    assert found[:4] == values[:4]


def test_escape_sequences_of_a_savepoint_do_not_reach_the_terminal(tmp_path):
    values = counts({"key": 1}, Types.LONG())
    path = stored(tmp_path / "savepoint", {"\x1b[31mred\x07": values}, splits={})
    done = invoke("show", path)
    assert done.exit_code == 0, done.output
    assert "\\x1b[31mred" in done.output
    assert "\x1b" not in done.output
