"""Not a number is one key, wherever it stands and however it is found."""

import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tidegate.core.modes import RuntimeExecutionMode, StateBackendType
from tidegate.operators.aggregations.by_record import RecordAggregation
from tidegate.operators.aggregations.final_results import Aggregating
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.functions import KeyedCoProcessFunction, KeyedProcessFunction
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.key_bytes import key_in
from tidegate.state.keys.key_rows import ObjectKeys
from tidegate.state.keys.selection import KeyColumns, select_key
from tidegate.testing.harness import OperatorHarness
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

PAIRS = Types.TUPLE([Types.DOUBLE(), Types.LONG()])
NARROW = Types.TUPLE([Types.FLOAT(), Types.LONG()])
ODD_NAN = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
"""With a sign and a payload."""


class Place(NamedTuple):
    latitude: float
    name: str


@dataclass(frozen=True)
class Spot:
    latitude: float


@dataclass(frozen=True, eq=False)
class Compared:
    """Equal if its fields are, as any dataclass is from Python 3.13 on."""

    latitude: float
    spot: Spot = Spot(0.0)

    def __eq__(self, other):
        return self.latitude == other.latitude and self.spot == other.spot

    def __hash__(self):
        return hash((self.latitude, self.spot))


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("nan"),
        lambda: np.float64("nan"),
        lambda: Decimal("nan"),
        lambda: (float("nan"), "a"),
        lambda: ((1, float("nan")), "a"),
        lambda: Place(float("nan"), "pole"),
        lambda: Row(latitude=float("nan")),
        lambda: Spot(float("nan")),
        lambda: Compared(float("nan")),
        lambda: (Compared(1.0, Compared(float("nan"))), "a"),
    ],
)
def test_not_a_number_is_one_key_wherever_it_stands(make):
    slots = ObjectKeys()
    assert slots.find_or_add([make(), make()]) == [0, 0]
    assert slots.find_or_add([make(), "other"]) == [0, 1]
    assert ObjectKeys(slots.values()).find_or_add([make()]) == [0]
    assert ObjectKeys([make()]).find_or_add([make()]) == [0]


def test_keys_that_were_columns_find_it_as_objects(a_backend):
    backend = a_backend()
    columns = KeyColumns([pa.array([1.0, ODD_NAN, math.nan])], is_tuple=False)
    one, *two = backend.places_of([1.0, ODD_NAN, math.nan], columns)
    assert two[0] == two[1] != one
    assert backend.places_of([float("nan"), "text"])[0] == two[0]


class Counts(KeyedProcessFunction):
    """How many records a key has had, and again at a time that is asked for twice."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        for _ in range(2):
            ctx.timer_service().register_processing_time_timer(1000)
        yield seen

    def on_timer(self, timestamp, ctx):
        yield "fired", self.seen.value()


class CountsBoth(KeyedCoProcessFunction):
    open = Counts.open
    process_element1 = process_element2 = Counts.process_element


@pytest.mark.parametrize("backend", StateBackendType)
@pytest.mark.parametrize(
    ("key", "types"),
    [
        (select_key(0), (None, None)),
        (select_key(0, PAIRS), (PAIRS, PAIRS)),
        (select_key(0, PAIRS), (PAIRS, None)),
        (select_key((0, 1), PAIRS), (PAIRS, None)),
    ],
)
def test_its_state_and_its_timer_are_found_again(key, types, backend):
    first, later = types
    operator = KeyedProcessOperator(Counts(), [key])
    with OperatorHarness(operator, settings={"state.backend.type": backend}) as harness:
        harness.process([(float("nan"), 1), (ODD_NAN, 1)], type_info=first)
        assert harness.take_output() == [1, 2]
        with harness.restore(harness.snapshot()) as restored:
            restored.process([(float("nan"), 1)], type_info=later)
            assert restored.take_output() == [3]
            restored.advance(2)
            assert restored.take_output() == [("fired", 3)]


def test_two_inputs_whose_keys_are_of_different_types_share_it():
    keys = [select_key(0, PAIRS), select_key(0, NARROW)]
    with OperatorHarness(KeyedProcessOperator(CountsBoth(), keys)) as harness:
        harness.process([(float("nan"), 1)], type_info=PAIRS)
        harness.process([(float("nan"), 1)], type_info=NARROW, input_index=1)
        assert harness.output == [1, 2]


def test_a_batch_job_has_one_result_for_it():
    key = select_key(0)
    operator = Aggregating(RecordAggregation(Aggregation.SUM, 1, key), key)
    settings = {"execution.runtime-mode": RuntimeExecutionMode.BATCH}
    with OperatorHarness(operator, settings=settings) as harness:
        harness.process([(float("nan"), 1), (float("nan"), 2)])
        harness.process([(float("nan"), 3)])
        harness.finish()
        assert [total for _, total in harness.output] == [6]


def test_a_map_is_not_searched_for_a_key_that_it_has():
    class Unsearched(dict):
        def __iter__(self):
            raise AssertionError

    stored = Unsearched({key_in({}, (1, float("nan"))): "found"})
    assert stored[key_in(stored, (1, float("nan")))] == "found"
