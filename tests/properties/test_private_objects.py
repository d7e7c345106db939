"""Random programs whose functions change every object they can reach.

Their results equal those of an interpreter that copies every object between functions: nobody sees
the changes of others, whatever the batches and chains.
"""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.datastream.functions import FlatMapFunction, KeyedProcessFunction
from tidegate.datastream.state import ListStateDescriptor, ValueStateDescriptor
from tidegate.testing.environments import mini_environment

RECORDS = [{"n": number, "parts": [number]} for number in range(5)]


class Changing(FlatMapFunction, KeyedProcessFunction):
    """One way of changing objects that others may see."""

    def __init__(self, how):
        self.how = how

    def open(self, runtime_context):
        self.box = {"n": 0, "parts": []}
        self.kept = []
        self.pair = "pair", []
        if runtime_context is not None and self.how in KEYED:
            self.value = runtime_context.get_state(ValueStateDescriptor("value"))
            self.list = runtime_context.get_list_state(ListStateDescriptor("list"))

    def flat_map(self, record):
        yield from getattr(self, self.how)(record)

    def process_element(self, record, ctx):
        yield from getattr(self, self.how)(record)

    def add(self, record):
        record["parts"].append("added")
        yield record

    def late(self, record):
        yield record
        record["n"] = "late"
        record["parts"].clear()

    def twice(self, record):
        yield record
        record["n"] = "second"
        yield record

    def reuse(self, record):
        self.box["n"] = record["n"]
        self.box["parts"].append(record["n"])
        yield self.box

    def keep(self, record):
        for earlier in self.kept:
            earlier["parts"].append("kept")
        self.kept.append(record)
        yield record

    def lend(self, record):
        yield {"n": (record["n"], record["parts"]), "parts": record["parts"]}
        record["parts"].append("lent")

    def inside(self, record):
        self.pair[1].append(record["n"])
        yield {"n": self.pair, "parts": record["parts"]}

    def all_at_once(self, record):
        return [record, self.box, {"n": "new", "parts": record["parts"]}, record]

    def remember(self, record):
        seen = self.value.value() or []
        seen.append(record)
        self.value.update(seen)
        record["n"] = "stored"
        yield {"n": len(seen), "parts": seen}
        self.list.add(record)
        record["parts"].append("after")
        yield {"n": "list", "parts": list(self.list)}


UNKEYED = ("add", "late", "twice", "reuse", "keep", "lend", "inside", "all_at_once")
KEYED = ("remember",)


class StoredValue:
    stored = None

    def value(self):
        return self.stored

    def update(self, value):
        self.stored = value if value is self.stored else deepcopy(value)


class StoredList(list):
    def add(self, value):
        self.append(deepcopy(value))


def interpreted(tree, records):
    """The results of every leaf, evaluated function by function with copies everywhere."""
    how, branches = tree
    function = Changing(how)
    function.open(None)
    function.value, function.list = StoredValue(), StoredList()
    results = []
    for record in records:
        results.extend(map(deepcopy, function.flat_map(deepcopy(record))))
    if not branches:
        return [results]
    return [leaf for branch in branches for leaf in interpreted(branch, results)]


def leaves(tree, stream):
    how, branches = tree
    if how in KEYED:
        results = stream.key_by(lambda record: 0).process(Changing(how))
    else:
        results = stream.flat_map(Changing(how))
    return [leaf for branch in branches for leaf in leaves(branch, results)] or [results]


def executed(tree, chaining, batch):
    configuration = {
        "pipeline.operator-chaining.enabled": chaining,
        "tidegate.step.max-records": batch,
    }
    with mini_environment(configuration) as env:
        found = leaves(tree, env.from_collection(RECORDS))
        first, *others = [leaf.map(lambda r, i=i: (i, r)) for i, leaf in enumerate(found)]
        results = (first.union(*others) if others else first).execute_and_collect()
        by_leaf = [[] for _ in found]
        for place, record in results:
            by_leaf[place].append(record)
        return by_leaf


def trees():
    how = st.sampled_from(UNKEYED + KEYED)
    leaf = st.tuples(how, st.just([]))
    return st.recursive(
        leaf, lambda below: st.tuples(how, st.lists(below, min_size=1, max_size=3)), max_leaves=4
    )


@given(tree=trees(), chaining=st.booleans(), batch=st.sampled_from([1, 2, 100]))
@examples(12)
def test_nobody_sees_what_somebody_else_changes(tree, chaining, batch):
    assert executed(tree, chaining, batch) == interpreted(tree, RECORDS)


@pytest.mark.parametrize("first", UNKEYED + KEYED)
def test_nor_does_a_function_see_what_follows_it(first):
    tree = (first, [(how, []) for how in UNKEYED + KEYED])
    assert executed(tree, True, 100) == interpreted(tree, RECORDS)
