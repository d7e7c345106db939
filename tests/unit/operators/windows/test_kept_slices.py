"""What a subtask keeps of stored slices for the next snapshots."""

import numpy as np
import pyarrow as pa

from tidegate.operators.aggregations.accumulators import Accumulators, Count
from tidegate.operators.windows.columnar import slice_table
from tidegate.operators.windows.columnar.slice_table import SliceTable
from tidegate.operators.windows.columnar.slicing import Slicing
from tidegate.state.backend import PayloadForm, StateMetadata
from tidegate.state.columnar.keyed_rows import FrozenRows, RowState
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_index import KeyIndex

METADATA = StateMetadata("s", "d", PayloadForm.ARROW)
KEYS, SLICES = 500, 20


def a_table():
    keys = KeyIndex([pa.string()], is_tuple=False)
    table = SliceTable(keys, Accumulators([Count("n", None)]), 0, -1, Slicing(1000, 10, 0))
    names = pa.array([f"{number:0200d}" for number in range(KEYS)])
    for number in range(SLICES):
        table.add([names], np.full(KEYS, 10 * number), [names])
    list(table.advance(10 * SLICES))
    return table


def snapshot(table):
    state = RowState(METADATA, ("start", "end", "n"), table.freeze(many=1))
    return FrozenRows([state], KeyGroupRange(0, 128), 128, table.keys).chunks()


def sizes(chunks):
    return [len(chunk.payload) for chunk in chunks]


def kept(table):
    return [each.kept.size for each in table._slices.values() if each.kept and each.kept.size]


def test_as_many_slices_are_kept_as_fit(monkeypatch):
    table, one = a_table(), sizes(snapshot(a_table()))[0]
    for limit in (0, one - 1, 3 * one + 1, 2 * SLICES * one):
        monkeypatch.setattr(slice_table, "_KEPT_BYTES", limit)
        for _ in range(2):
            assert sizes(snapshot(table)) == [one] * SLICES
            assert kept(table) == [one] * min(SLICES, limit // one)


def test_snapshots_that_are_written_at_the_same_time_share_the_room(monkeypatch):
    table, one = a_table(), sizes(snapshot(a_table()))[0]
    monkeypatch.setattr(slice_table, "_KEPT_BYTES", 3 * one + 1)
    first, second = snapshot(table), snapshot(table)
    assert [sizes(pair) for pair in zip(first, second, strict=True)] == [[one, one]] * SLICES
    assert kept(table) == [one] * 3


def test_a_snapshot_that_is_given_up_keeps_only_whole_slices(monkeypatch):
    monkeypatch.setattr("tidegate.state.columnar.keyed_rows.ROWS_PER_CHUNK", KEYS // 4)
    table, whole = a_table(), list(snapshot(a_table()))
    given_up = snapshot(table)
    for _ in range(len(whole) // SLICES + 1):
        next(given_up)
    given_up.close()
    assert len(kept(table)) == 1
    assert sizes(snapshot(table)) == sizes(whole)
