"""Branches of a stream do not see each other's changes, however they part and meet."""

import pytest

from tidegate.common import Types
from tidegate.common.types import Row
from tidegate.datastream.functions import (
    CoMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
)
from tidegate.datastream.output_tag import OutputTag
from tidegate.datastream.state import ValueStateDescriptor
from tidegate.testing.environments import mini_environment

RECORDS = [{"n": n} for n in range(3)]
SIDE = OutputTag("side")


def spoil(record):
    record["n"] = "spoiled"
    return record


def spoil_row(row):
    row[0] = -1
    return row


def collected(*streams):
    """The results of all streams, one job for them together."""
    first, *others = [stream.map(lambda r, i=i: (i, r)) for i, stream in enumerate(streams)]
    results = first.union(*others).execute_and_collect(limit=100)
    return [[record for i, record in results if i == place] for place in range(len(streams))]


@pytest.fixture(params=["chained", "apart"])
def env(request):
    chaining = {"pipeline.operator-chaining.enabled": request.param == "chained"}
    with mini_environment(chaining) as env:
        yield env


def test_a_branch_does_not_see_what_another_changes(env):
    stream = env.from_collection(RECORDS).map(dict)
    before, spoiled, after = stream.map(lambda r: r), stream.map(spoil), stream.map(lambda r: r)
    assert collected(before, spoiled, after) == [RECORDS, [{"n": "spoiled"}] * 3, RECORDS]


def test_branches_of_a_typed_stream_have_rows_of_their_own(env):
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    stream = env.from_collection([Row(n=1), Row(n=2)], row)
    assert collected(stream.map(spoil_row), stream.map(lambda r: r)) == [
        [Row(n=-1), Row(n=-1)],
        [Row(n=1), Row(n=2)],
    ]


def test_a_stream_joined_with_itself_brings_every_record_twice(env):
    stream = env.from_collection([{"seen": 0}]).map(dict)

    def count(record):
        record["seen"] += 1
        return record

    assert stream.union(stream).map(count).execute_and_collect(limit=9) == [{"seen": 1}] * 2


class Connected(CoMapFunction):
    def map1(self, value):
        return spoil(value)

    def map2(self, value):
        return value


def test_a_stream_connected_with_itself_has_two_sides(env):
    stream = env.from_collection([{"n": 1}]).map(dict)
    results = stream.connect(stream).map(Connected()).execute_and_collect(limit=9)
    assert sorted(results, key=str) == [{"n": "spoiled"}, {"n": 1}]


class Both(ProcessFunction):
    def process_element(self, value, ctx):
        yield value
        yield SIDE, value


def test_main_and_side_output_are_two_records(env):
    stream = env.from_collection(RECORDS).process(Both())
    spoiled, side = stream.map(spoil), stream.get_side_output(SIDE)
    assert collected(spoiled, side) == [[{"n": "spoiled"}] * 3, RECORDS]


class Remembers(KeyedProcessFunction):
    """Emits the record before this one, which is in state, and this one."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value, ctx):
        before = self.last.value()
        self.last.update(value)
        yield before
        yield value


def test_state_does_not_see_what_is_changed_downstream(env):
    stream = env.from_collection(RECORDS).key_by(lambda r: 0).process(Remembers())
    present = stream.filter(lambda record: record is not None)
    results = present.map(lambda r: (r["n"], spoil(r))[0]).execute_and_collect(limit=9)
    assert results == [0, 0, 1, 1, 2]


class RemembersAll(MapFunction):
    """Changes all records before the one it returns."""

    def open(self, runtime_context):
        self.seen = []

    def map(self, value):
        for record in self.seen:
            spoil(record)
        self.seen.append(value)
        return value


def test_downstream_does_not_see_what_a_function_changes_later(env):
    stream = env.from_collection(RECORDS).map(RemembersAll())
    assert stream.map(lambda r: r).execute_and_collect(limit=9) == RECORDS


def test_branches_share_objects_where_objects_are_reused():
    with mini_environment({"pipeline.object-reuse": "true"}) as env:
        stream = env.from_collection(RECORDS).map(dict)
        spoiled, after = stream.map(spoil), stream.map(lambda r: r)
        assert collected(spoiled, after) == [[{"n": "spoiled"}] * 3] * 2
