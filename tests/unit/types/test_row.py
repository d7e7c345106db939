import copy
import pickle

import pytest

from tidegate.types.row import Row, RowKind


def test_positional_values_make_a_row_without_names():
    assert repr(Row(1, "a")) == "<Row(1, 'a')>"


def test_keyword_values_make_a_row_with_names_in_their_order():
    assert repr(Row(name="Ada", age=36)) == "Row(name='Ada', age=36)"


def test_str_of_a_row_is_its_repr():
    assert str(Row(1, "a")) == "<Row(1, 'a')>"


def test_positional_and_keyword_values_do_not_mix():
    with pytest.raises(ValueError, match="positional or keyword arguments, not both"):
        Row(1, a=2)


def test_a_row_of_names_makes_rows_with_these_names():
    Person = Row("name", "age")  # noqa: N806
    assert Person("Ada", 36) == Row(name="Ada", age=36)
    assert repr(Person) == "<Row('name', 'age')>"


def test_a_row_of_names_makes_shorter_rows_too():
    assert Row("name", "age")("Ada") == Row(name="Ada")


def test_a_row_of_names_refuses_more_values_than_names():
    with pytest.raises(ValueError, match=r"makes rows of 2 fields, got \(1, 2, 3\)"):
        Row("name", "age")(1, 2, 3)


def test_fields_are_reached_by_position():
    row = Row("a", "b", "c")
    assert (row[0], row[-1], row[0:2]) == ("a", "c", ["a", "b"])


def test_a_position_out_of_range_is_an_index_error():
    with pytest.raises(IndexError):
        Row(1)[1]


def test_fields_are_reached_by_name():
    row = Row(name="Ada", age=36)
    assert (row["name"], row.age) == ("Ada", 36)


def test_an_unknown_name_as_item_is_a_value_error_that_shows_the_row():
    with pytest.raises(ValueError, match=r"no field 'size' in Row\(name='Ada'\)"):
        Row(name="Ada")["size"]


def test_an_unknown_name_as_attribute_is_an_attribute_error_that_shows_the_row():
    with pytest.raises(AttributeError, match=r"no field 'size' in Row\(name='Ada'\)"):
        Row(name="Ada").size  # noqa: B018


def test_a_name_on_a_row_without_names_is_refused():
    with pytest.raises(ValueError, match="this Row has no field names, use a position"):
        Row(1, 2)["a"]


def test_a_method_hides_a_field_of_the_same_name():
    row = Row(as_dict=1)
    assert callable(row.as_dict)
    assert row["as_dict"] == 1


def test_fields_are_assigned_by_position_name_and_slice():
    row = Row(a=1, b=2, c=3)
    row[0] = 10
    row["b"] = 20
    row[2:3] = [30]
    assert row == Row(a=10, b=20, c=30)


def test_attributes_cannot_be_assigned():
    row = Row(a=1)
    with pytest.raises(AttributeError):
        row.a = 2
    with pytest.raises(AttributeError):
        row.b = 2


def test_assigning_a_field_leaves_other_rows_alone():
    values = Row(a=1, b=2)
    changed = copy.copy(values)
    changed["a"] = 5
    assert values == Row(a=1, b=2)


def test_as_dict_has_the_values_by_name():
    assert Row(name="Ada", age=36).as_dict() == {"name": "Ada", "age": 36}


def test_as_dict_keeps_rows_inside():
    assert Row(a=Row(b=1)).as_dict() == {"a": Row(b=1)}


def test_as_dict_recursive_converts_rows_in_rows_lists_and_dicts():
    row = Row(a=Row(b=1), c=[Row(d=2)], e={"f": Row(g=3)})
    assert row.as_dict(True) == {"a": {"b": 1}, "c": [{"d": 2}], "e": {"f": {"g": 3}}}


def test_as_dict_needs_names():
    with pytest.raises(TypeError, match="without field names cannot become a dict"):
        Row(1, 2).as_dict()


def test_get_fields_by_names_returns_the_values_in_that_order():
    assert Row(a=1, b=2, c=3).get_fields_by_names(["c", "a"]) == [3, 1]


def test_get_fields_by_names_of_a_row_without_names_returns_all_values():
    assert Row(1, 2).get_fields_by_names(["a", "b"]) == [1, 2]


def test_get_fields_by_names_refuses_unknown_names():
    with pytest.raises(ValueError, match=r"no field 'q', 'r' in Row\(a=1\)"):
        Row(a=1).get_fields_by_names(["q", "a", "r"])


def test_set_field_names_gives_names_to_the_values():
    row = Row("Ada", 36)
    row.set_field_names(["name", "age"])
    assert row == Row(name="Ada", age=36)
    assert row.name == "Ada"


def test_set_field_names_replaces_names():
    row = Row(a=1)
    row.set_field_names(["b"])
    assert row.b == 1
    assert not hasattr(row, "a")


def test_set_field_names_needs_one_name_for_each_value():
    with pytest.raises(ValueError, match="1 names for 2 fields"):
        Row(1, 2).set_field_names(["a"])


def test_contains_looks_for_names_or_else_for_values():
    assert "a" in Row(a=1)
    assert 1 not in Row(a=1)
    assert 1 in Row(1, 2)


def test_a_row_iterates_over_its_values():
    assert list(Row(a=1, b=2)) == [1, 2]
    assert len(Row(a=1, b=2)) == 2


def test_rows_with_the_same_values_are_equal():
    assert Row(1, "a") == Row(1, "a")
    assert Row(1, "a") != Row(1, "b")


def test_rows_with_names_are_equal_whatever_the_order_of_fields():
    assert Row(a=1, b=2) == Row(b=2, a=1)


def test_equal_rows_have_equal_hashes():
    assert hash(Row(a=1, b=2)) == hash(Row(b=2, a=1))
    assert {Row(1, 2): "x"}[Row(1, 2)] == "x"


def test_a_row_with_names_differs_from_one_without_and_from_other_names():
    assert Row(a=1) != Row(1)
    assert Row(a=1) != Row(b=1)


def test_a_row_is_not_equal_to_a_tuple():
    assert Row(1, 2) != (1, 2)


def test_rows_of_different_kinds_differ():
    assert Row.of_kind(RowKind.DELETE, 1) != Row(1)


def test_a_row_with_a_list_inside_has_no_hash():
    with pytest.raises(TypeError, match="unhashable"):
        hash(Row([1]))


def test_rows_have_no_order():
    with pytest.raises(TypeError):
        Row(1) < Row(2)  # noqa: B015


def test_a_new_row_is_an_insert():
    assert Row(1).get_row_kind() is RowKind.INSERT


def test_the_kind_can_be_given_and_changed_without_losing_names():
    row = Row.of_kind(RowKind.UPDATE_BEFORE, a=1)
    row.set_row_kind(RowKind.UPDATE_AFTER)
    assert (row.get_row_kind(), row.a) == (RowKind.UPDATE_AFTER, 1)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (RowKind.INSERT, "+I"),
        (RowKind.UPDATE_BEFORE, "-U"),
        (RowKind.UPDATE_AFTER, "+U"),
        (RowKind.DELETE, "-D"),
    ],
)
def test_a_kind_shows_as_in_flink(kind, shown):
    assert str(kind) == shown


@pytest.mark.parametrize(
    "row",
    [Row(), Row(1, "a"), Row(a=1, b=[2]), Row.of_kind(RowKind.DELETE, a=1), Row(a=Row(1))],
    ids=repr,
)
def test_rows_survive_pickling_and_copying(row):
    for clone in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert clone == row
        assert repr(clone) == repr(row)


class Measurement(Row):
    def twice(self):
        return self[0] * 2


def test_a_subclass_stays_one_with_names_kind_and_pickle():
    row = Measurement(value=3)
    row.set_row_kind(RowKind.DELETE)
    clone = pickle.loads(pickle.dumps(row))
    assert (clone.twice(), clone.value, clone.get_row_kind()) == (6, 3, RowKind.DELETE)


def test_more_sets_of_names_than_are_remembered_do_no_harm():
    first = Row(name_0=0)
    for number in range(3000):
        assert Row(**{f"name_{number}": number})[0] == number
    assert first == Row(name_0=0)
    assert first.name_0 == 0
