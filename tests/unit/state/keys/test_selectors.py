import random
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import NamedTuple

import pytest

from tidegate.operators.functions import KeySelector
from tidegate.state.keys.selectors import field_of_selector
from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import Types


@dataclass
class Event:
    user: str
    amount: int


class Pair(NamedTuple):
    left: str
    right: int


TUPLE = Types.TUPLE([Types.STRING(), Types.LONG()])
ROW = Types.ROW_NAMED(["word", "as_dict"], [Types.STRING(), Types.LONG()])
EVENT = as_type_info(Event)
PAIR = as_type_info(Pair)
flag = True


def named(record):
    return record[1]


class First(KeySelector):
    def get_key(self, value):
        return value[0]


class Chosen(KeySelector):
    def __init__(self, field):
        self.field = field

    def get_key(self, value):
        return value[self.field]


@pytest.mark.parametrize(
    ("selector", "type_info", "fields"),
    [
        (lambda x: x[0], TUPLE, 0),
        (lambda x: x[-1], TUPLE, 1),
        (named, TUPLE, 1),
        (lambda x: (x[1], x[0]), TUPLE, (1, 0)),
        (lambda x: (x[1],), TUPLE, (1,)),
        (itemgetter(1), TUPLE, 1),
        (itemgetter(1, 0), TUPLE, (1, 0)),
        (First(), TUPLE, 0),
        (lambda x: x.word, ROW, 0),
        (lambda x: x["word"], ROW, 0),
        (lambda x: x[0], ROW, 0),
        (lambda x: x.amount, EVENT, 1),
        (attrgetter("amount"), EVENT, 1),
        (lambda x: (x.user, x.amount), EVENT, (0, 1)),
        (lambda x: x.right, PAIR, 1),
        (lambda x: x[1], PAIR, 1),
        (lambda x: x, Types.STRING(), 0),
    ],
)
def test_a_selector_that_only_takes_fields_is_seen_through(selector, type_info, fields):
    assert field_of_selector(selector, type_info) == fields


calls = []


@pytest.mark.parametrize(
    ("selector", "type_info"),
    [
        (lambda x: x[0] + "", TUPLE),
        (lambda x: x[0].upper(), TUPLE),
        (lambda x: x[0][0], TUPLE),
        (lambda x: str(x[0]), TUPLE),
        (lambda x: (x[0], "constant"), TUPLE),
        (lambda x: x[0:1], TUPLE),
        (lambda x: x, TUPLE),
        (lambda x: "constant", TUPLE),
        (lambda x: x[7], TUPLE),
        (lambda x: x["f0"], TUPLE),
        (lambda x: x.f0, TUPLE),
        (lambda x: x[0] if x[1] else "none", TUPLE),
        (lambda x: x[0] if flag else x[1], TUPLE),
        (lambda x: x[random.randrange(2)], TUPLE),
        (lambda x: x[0] if isinstance(x, tuple) else x[1], TUPLE),
        (lambda x: calls.append(x) or x[0], TUPLE),
        (Chosen(0), TUPLE),
        (lambda x: x.as_dict, ROW),
        (lambda x: x.missing, ROW),
        (lambda x: x.word.length, ROW),
        (lambda x: x[0], EVENT),
        (lambda x: x["user"], EVENT),
        (lambda x: x.__class__, EVENT),
        (lambda x: x["left"], PAIR),
        (lambda x: x + "", Types.STRING()),
        (lambda x: x if not isinstance(x, str) else x.upper(), Types.STRING()),
        (lambda x: (x,), Types.STRING()),
        (str.upper, Types.STRING()),
        (hash, TUPLE),
    ],
)
def test_a_selector_that_does_anything_else_is_left_alone(selector, type_info):
    assert field_of_selector(selector, type_info) is None


def test_a_selector_is_not_called_when_it_might_do_anything_else():
    field_of_selector(lambda x: calls.append(x) or x[0], TUPLE)
    assert calls == []


def test_a_closure_is_left_alone_for_what_it_holds_may_change():
    field = 0
    assert field_of_selector(lambda x: x[field], TUPLE) is None
