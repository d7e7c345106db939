import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.common import Row, Types
from tidegate.connectors.row_schemas import (
    CsvRowDeserializationSchema,
    JsonRowDeserializationSchema,
    UnreadableMessages,
)
from tidegate.core.errors import ConfigError

PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.LONG()])
JSON = JsonRowDeserializationSchema(PERSON)
CSV = CsvRowDeserializationSchema(PERSON)


def rows(schema, *messages):
    return schema.format.decode(schema.deserialize_all([m.encode() for m in messages]))


def test_one_message_is_one_row():
    assert JSON.deserialize(b'{"age": 3, "name": "a"}') == Row(name="a", age=3)
    assert CSV.deserialize(b"a,3") == Row(name="a", age=3)


def test_the_type_of_the_rows_is_known():
    assert JSON.produced_type() == PERSON


@given(
    st.lists(
        st.tuples(st.none() | st.text(), st.none() | st.integers(-(2**63), 2**63 - 1)), min_size=1
    ),
    st.sampled_from([None, 2]),
)
def test_objects_come_back_however_they_are_written(people, indent):
    messages = [
        json.dumps({"x": {"y": [age]}, "name": name, "age": age}, indent=indent).encode()
        for name, age in people
    ]
    decoded = JSON.format.decode(JSON.deserialize_all(messages))
    assert [tuple(row) for row in decoded] == people


@pytest.mark.parametrize(
    "messages",
    [
        [""],
        ["{}{}"],
        ["{}{}", ""],
        ["{}{}", " "],
        ['{"age": 1', "}{}"],
        ['{"age": 1', "}", "{}{}"],
        ['{"name": "}', '{"}', "{}{}"],
        ["[]"],
        ["1"],
        ['{"age": "x"}'],
        ['{"age": 1.5}'],
    ],
)
def test_messages_that_are_no_single_objects_are_refused(messages):
    with pytest.raises(UnreadableMessages):
        rows(JSON, *messages)


def test_a_missing_field_is_none_unless_it_must_be_there():
    builder = JsonRowDeserializationSchema.builder().type_info(PERSON)
    assert rows(builder.build(), '{"name": "a"}') == [Row(name="a", age=None)]
    strict = builder.fail_on_missing_field().build()
    assert rows(strict, '{"name": "a", "age": null}') == [Row(name="a", age=None)]
    with pytest.raises(UnreadableMessages, match="the field 'age' is missing"):
        rows(strict, '{"name": "a", "age": 1}', '{"name": "a"}')


def test_what_does_not_parse_may_be_ignored():
    lenient = JsonRowDeserializationSchema.builder().type_info(PERSON).ignore_parse_errors()
    assert lenient.build().deserialize(b"{") is None


def test_strict_and_lenient_exclude_each_other():
    builder = JsonRowDeserializationSchema.builder().type_info(PERSON)
    with pytest.raises(ConfigError, match="not together with fail_on_missing_field"):
        builder.ignore_parse_errors().fail_on_missing_field().build()


def test_a_type_with_fields_is_needed():
    with pytest.raises(ConfigError, match="give the type of the rows"):
        JsonRowDeserializationSchema.builder().build()
    with pytest.raises(ConfigError, match="give a type with named fields"):
        JsonRowDeserializationSchema(Types.LONG())
    with pytest.raises(ConfigError, match="without pickled parts"):
        JsonRowDeserializationSchema(Types.ROW([Types.PICKLED_BYTE_ARRAY()]))


@pytest.mark.parametrize("messages", [["a,1\nb,2", ""], ["a,x"], ["a"], ["a,1,2"]])
def test_messages_that_are_no_lines_of_the_row_are_refused(messages):
    with pytest.raises(UnreadableMessages):
        rows(CSV, *messages)


def test_delimiters_and_quotes_of_lines_can_be_chosen():
    builder = CsvRowDeserializationSchema.Builder(PERSON)
    schema = builder.set_field_delimiter(";").set_quote_character("'").build()
    assert rows(schema, "'a;b';1", ";") == [Row(name="a;b", age=1), Row(name="", age=None)]


@pytest.mark.parametrize("schema", [JSON, CSV])
def test_schemas_travel(schema):
    travelled = pickle.loads(pickle.dumps(schema))
    assert travelled.format == schema.format
