import pickle
from dataclasses import dataclass

import pyarrow as pa
import pytest

from tidegate.core.errors import MissingField, UnsupportedKey
from tidegate.operators.functions import KeySelector
from tidegate.state.keys.selection import select_key
from tidegate.state.keys.stable_hash import stable_hash
from tidegate.stream.batch import Batch
from tidegate.types.arrow import arrow_format
from tidegate.types.infer import as_type_info
from tidegate.types.instant import Instant
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

WORDS = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])
ROWS = [Row(word="a", count=1), Row(word="b", count=2), Row(word="a", count=3)]


@dataclass(frozen=True)
class Event:
    user: str
    amount: int


class ByLength(KeySelector):
    def open(self, runtime_context):
        self.shift = runtime_context

    def get_key(self, value):
        return len(value) + self.shift

    def close(self):
        self.shift = None


def columnar(records, type_info):
    format = arrow_format(type_info)
    return Batch.of_columns(format.encode(records), format)


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("word", ["a", "b", "a"]),
        (0, ["a", "b", "a"]),
        (1, [1, 2, 3]),
        (("word", 1), [("a", 1), ("b", 2), ("a", 3)]),
        (("word",), [("a",), ("b",), ("a",)]),
        (lambda row: row.word, ["a", "b", "a"]),
        (lambda row: row[1] % 2, [1, 0, 1]),
    ],
)
@pytest.mark.parametrize("form", ["columns", "rows", "untyped"])
def test_keys_are_the_same_in_every_form_of_a_stream(key, keys, form):
    if form == "untyped":
        selection, batch = select_key(key), Batch.of_records(ROWS)
    else:
        selection = select_key(key, WORDS)
        batch = columnar(ROWS, WORDS)
        if form == "rows":
            batch = Batch.of_records(ROWS, arrow_format(WORDS))
    assert selection.values(batch) == keys
    assert list(map(selection.function, ROWS)) == keys
    assert selection.hashes(batch).tolist() == [stable_hash(found) for found in keys]


@pytest.mark.parametrize(
    ("records", "key", "keys"),
    [
        ([("a", 1)], 0, ["a"]),
        ([["a", 1]], 1, [1]),
        ([{"user": "ada"}], "user", ["ada"]),
        ([Event("ada", 3)], "user", ["ada"]),
        ([Event("ada", 3)], ("amount", "user"), [(3, "ada")]),
    ],
)
def test_fields_of_untyped_records_are_found_by_position_or_name(records, key, keys):
    assert select_key(key).values(Batch.of_records(records)) == keys


def test_a_field_of_a_dataclass_stream_is_a_column():
    event = as_type_info(Event)
    selection = select_key("user", event)
    batch = columnar([Event("ada", 3)], event)
    assert selection.columns == 0
    assert selection.column(batch) == pa.array(["ada"])
    assert selection.function(Event("bob", 1)) == "bob"


@pytest.mark.parametrize("key", [0, "value", lambda x: x])
def test_the_key_of_single_values_is_the_value(key):
    selection = select_key(key, Types.STRING())
    assert selection.columns == 0
    assert selection.values(columnar(["x", "y"], Types.STRING())) == ["x", "y"]


def test_values_that_arrow_decodes_differently_are_taken_from_the_records():
    typed = Types.TUPLE([Types.INSTANT(), Types.BIG_INT()])
    record = (Instant(1, 999), 2**70)
    batch = columnar([record], typed)
    assert select_key(0, typed).values(batch) == [record[0]]
    assert [type(key) for key in select_key(1, typed).values(batch)] == [int]
    assert select_key((0, 1), typed).values(batch) == [record]
    assert select_key((0, 1), typed).hashes(batch).tolist() == [stable_hash(record)]


@pytest.mark.parametrize("key", ["missing", 2, ("word", "missing"), -1])
def test_a_field_that_the_type_does_not_have_is_named(key):
    with pytest.raises(MissingField, match="the fields are: word, count"):
        select_key(key, WORDS)


def test_a_field_of_a_single_value_is_refused():
    with pytest.raises(MissingField, match="no field 1"):
        select_key(1, Types.STRING())


def test_what_is_no_key_is_refused():
    with pytest.raises(TypeError, match="takes a field, a function or a KeySelector, got float"):
        select_key(1.5)


def test_a_key_without_a_stable_hash_is_refused():
    with pytest.raises(UnsupportedKey, match="a set is mutable"):
        select_key(lambda x: x).hashes(Batch.of_records([{1}]))


def test_a_key_selector_is_opened_and_closed():
    selection = select_key(ByLength())
    selection.open(10)
    assert selection.values(Batch.of_records(["abc"])) == [13]
    selection.close()
    assert selection.selector.shift is None


@pytest.mark.parametrize("key", ["word", 1, ("word", "count")])
def test_a_selection_of_fields_travels_pickled(key):
    selection = pickle.loads(pickle.dumps(select_key(key, WORDS)))
    assert selection.columns == select_key(key, WORDS).columns
    assert selection.values(Batch.of_records(ROWS)) == select_key(key).values(
        Batch.of_records(ROWS)
    )


def test_keys_are_those_of_the_records_that_arrive_not_of_those_that_were_sent():
    typed = Types.ROW_NAMED(["weight"], [Types.FLOAT()])
    sent = Batch.of_records([{"weight": 0.1}], arrow_format(typed))
    arrived = pytest.approx(0.1, rel=1e-6)
    for key in ("weight", lambda row: row.weight * 1):
        [found] = select_key(key, typed).values(sent)
        assert found == arrived
        assert found != 0.1
        assert select_key(key, typed).hashes(sent).tolist() == [stable_hash(found)]
