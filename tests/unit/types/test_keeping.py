import json
import sys
from datetime import datetime

import pytest

from tidegate.types.keeping import holds_nothing, keeps_nothing

SEEN = []
LIMIT = 3


def pair(record):
    return record[0], len(record)


def words(line):
    return [word.strip().lower() for word in line.split(",") if word]


def renamed(record):
    changed = {**record, "n": sum(part for part in record["parts"])}
    changed["k"] = pair((changed["n"], None))
    return changed


def factorial(number):
    return 1 if number < 2 else number * factorial(number - 1)


def parsed(line):
    return datetime.fromisoformat(json.loads(line)["at"])


@pytest.mark.parametrize(
    "function", [pair, words, renamed, factorial, parsed, dict, len, lambda r: r[0]]
)
def test_a_function_of_nothing_but_its_argument_keeps_nothing(function):
    assert keeps_nothing(function)


class Scaling:
    FACTORS = [1, 2]  # noqa: RUF012

    def __init__(self, factor):
        self._factor = factor

    def scaled(self, record):
        return record[0], record[1] * self._factor

    def by_itself(self, record):
        return self

    def in_an_attribute(self, record):
        self.last = record
        return record

    def of_its_class(self, record):
        return self.FACTORS

    def by_a_method(self, record):
        return self.scaled(record)

    def by_inner_code(self, record):
        return [self for _ in record]

    def by_its_insides(self, record):
        return self.__dict__

    def as_long_as_it_is_read(self, record):
        yield record


def test_a_method_that_reads_plain_attributes_keeps_nothing():
    assert keeps_nothing(Scaling(2).scaled)
    assert keeps_nothing(Scaling("x").scaled)


def test_an_object_that_holds_what_can_change_may_keep_it_there():
    scaling = Scaling(2)
    assert holds_nothing(scaling.scaled)
    scaling._factor = [2]
    assert not holds_nothing(scaling.scaled)
    assert not keeps_nothing(scaling.scaled)


def in_a_global(record):
    SEEN.append(record)
    return record


def by_another(record):
    return in_a_global(record)


def under_a_new_name(record):
    global last  # noqa: PLW0603
    last = record
    return record


def in_a_default(record, seen=[]):  # noqa: B006
    return seen


def in_an_attribute(record):
    in_an_attribute.last = record
    return record


def by_an_import(record):
    import tidegate

    return tidegate


def in_a_module(record):
    return sys.modules


def in_a_module_of_a_module(record):
    return json.decoder.scanner


def in_a_module_under_another_name(record):
    found = json
    return found.decoder


def in_an_attribute_of_another(record):
    return pair.seen


def by_inner_code(record):
    return [SEEN.append(record) for _ in range(2)]


def by_its_insides(record):
    return pair.__globals__


def as_long_as_it_is_read(record):
    yield record
    record.clear()


def in_a_closure(seen):
    return lambda record: seen.append(record) or record


handler = pair


def by_a_name_that_may_change(record):
    return handler(record)


@pytest.mark.parametrize(
    "function",
    [
        in_a_global,
        by_another,
        under_a_new_name,
        in_a_default,
        in_an_attribute,
        by_an_import,
        in_a_module,
        in_a_module_of_a_module,
        in_a_module_under_another_name,
        in_an_attribute_of_another,
        by_inner_code,
        by_its_insides,
        as_long_as_it_is_read,
        in_a_closure([]),
        Scaling(2).by_itself,
        Scaling(2).in_an_attribute,
        Scaling(2).of_its_class,
        Scaling(2).by_a_method,
        Scaling(2).by_inner_code,
        Scaling(2).by_its_insides,
        Scaling(2).as_long_as_it_is_read,
        by_a_name_that_may_change,
        lambda record: record * LIMIT,
        SEEN.append,
        json.loads,
        setattr,
        str.upper,
        object(),
    ],
)
def test_a_function_that_reaches_anything_else_may_keep_an_object(function):
    assert not keeps_nothing(function)
