"""Types that have got fields since values of them were stored."""

import json
import pickle
from collections import namedtuple
from dataclasses import field, make_dataclass

import pytest

from tidegate.core.errors import TypeMismatch
from tidegate.types.evolution import Inconvertible, TypeStructure, evolution, structure_of
from tidegate.types.infer import as_type_info
from tidegate.types.row import Row, RowKind
from tidegate.types.typeinfo import Types

OLD = Types.ROW_NAMED(["user", "total"], [Types.STRING(), Types.LONG()])
NEW = Types.ROW_NAMED(
    ["user", "currency", "total", "tags"],
    [Types.STRING(), Types.STRING(), Types.LONG(), Types.LIST(Types.STRING())],
    defaults={"currency": "EUR", "tags": []},
)


def evolved(old, new):
    return evolution(structure_of(as_type_info(old)), as_type_info(new))


def refusal(old, new):
    with pytest.raises(Inconvertible) as failure:
        evolved(old, new)
    return str(failure.value)


# --- rows -----------------------------------------------------------------------------------------


def test_rows_get_the_defaults_of_their_new_fields_wherever_these_stand():
    convert = evolved(OLD, NEW).convert
    assert convert(Row(user="ada", total=3)) == Row(user="ada", currency="EUR", total=3, tags=[])
    assert convert(Row(total=3, user="ada")).as_dict()["total"] == 3
    assert convert(None) is None


def test_what_a_program_has_stored_in_place_of_a_row_keeps_its_form():
    convert = evolved(OLD, NEW).convert
    assert convert(("ada", 3)) == ("ada", "EUR", 3, [])
    assert convert(["ada", 3]) == ["ada", "EUR", 3, []]
    assert convert(Row("ada", 3)) == Row("ada", "EUR", 3, [])
    assert convert({"user": "ada"}) == {"user": "ada", "currency": "EUR", "tags": []}
    assert convert(Row.of_kind(RowKind.DELETE, user="ada", total=3)).get_row_kind() is (
        RowKind.DELETE
    )


@pytest.mark.parametrize("value", [7, ("ada",), Row(user="ada"), {"other": 1}])
def test_what_is_no_such_row_cannot_be_converted(value):
    with pytest.raises(Inconvertible):
        evolved(OLD, NEW).convert(value)


def test_every_row_has_a_default_of_its_own():
    convert = evolved(OLD, NEW).convert
    convert(Row(user="ada", total=3)).tags.append("changed")
    assert convert(Row(user="bob", total=4)).tags == []


def test_a_new_field_without_a_default_is_none():
    new = Types.ROW_NAMED(["user", "total", "city"], [*OLD.get_field_types(), Types.STRING()])
    change = evolved(OLD, new)
    assert change.convert(Row(user="ada", total=3)) == Row(user="ada", total=3, city=None)
    assert change.added == ("city = None",)


def test_the_new_fields_are_shown_with_their_defaults():
    assert evolved(OLD, NEW).added == ("currency = 'EUR'", "tags = []")
    assert evolved(OLD, OLD) is None


def test_fields_with_names_may_change_their_order():
    new = Types.ROW_NAMED(["total", "user"], [Types.LONG(), Types.STRING()])
    converted = evolved(OLD, new).convert(Row(user="ada", total=3))
    assert list(converted) == [3, "ada"]
    assert converted.user == "ada"


def test_rows_inside_of_lists_maps_and_rows_get_fields_too():
    def around(inner):
        return Types.ROW_NAMED(
            ["one", "many"],
            [inner, Types.MAP(Types.STRING(), Types.LIST(inner))],
        )

    change = evolved(around(OLD), around(NEW))
    old, new = Row(user="ada", total=3), Row(user="ada", currency="EUR", total=3, tags=[])
    assert change.convert(Row(one=old, many={"a": [old, None]})) == (
        Row(one=new, many={"a": [new, None]})
    )
    assert change.added[:2] == ("one.currency = 'EUR'", "one.tags = []")


def test_defaults_do_not_make_another_type():
    plain = Types.ROW_NAMED(NEW.get_field_names(), NEW.get_field_types())
    assert plain == NEW
    assert str(plain) == str(NEW)


def test_a_default_must_be_a_value_of_its_field():
    with pytest.raises(TypeMismatch, match="Long"):
        Types.ROW_NAMED(["total"], [Types.LONG()], defaults={"total": "none"})
    with pytest.raises(ValueError, match="no field 'sum'; the fields are: total"):
        Types.ROW_NAMED(["total"], [Types.LONG()], defaults={"sum": 0})


# --- what is refused ------------------------------------------------------------------------------


def test_a_field_that_is_gone_is_named():
    new = Types.ROW_NAMED(["user"], [Types.STRING()])
    assert refusal(OLD, new) == "field 'total' is gone"


def test_a_renamed_field_is_another_field():
    new = Types.ROW_NAMED(["user", "sum"], [Types.STRING(), Types.LONG()])
    assert refusal(OLD, new) == (
        "field 'total' is gone, and 'sum' is new (a renamed field is another field)"
    )


def test_a_field_of_another_type_is_named():
    new = Types.ROW_NAMED(["user", "total"], [Types.STRING(), Types.DOUBLE()])
    assert refusal(OLD, new) == "field 'total' was Long and is Double now"
    old_list, new_list = (Types.ROW_NAMED(["rows"], [Types.LIST(inner)]) for inner in (OLD, new))
    assert refusal(old_list, new_list) == "field 'rows.total' was Long and is Double now"


@pytest.mark.parametrize("kind", [Types.ROW, Types.TUPLE])
def test_without_names_nobody_can_tell_which_field_is_new(kind):
    reason = refusal(kind([Types.LONG()]), kind([Types.LONG(), Types.LONG()]))
    assert reason.startswith("the fields of the type have no names")
    assert "Types.ROW_NAMED" in reason


def test_keys_of_maps_stay_as_they_are():
    old, new = (Types.MAP(key, Types.LONG()) for key in (OLD, NEW))
    assert refusal(old, new) == "the keys of the type have another type"


def test_another_kind_of_type_is_refused():
    assert refusal(OLD, Types.LONG()) == "the type was row and is Long now"


# --- classes --------------------------------------------------------------------------------------

FIELDS = [("user", str), ("total", int)]
NEW_FIELDS = [
    *FIELDS,
    ("currency", str, field(default="EUR")),
    ("tags", list[str], field(default_factory=list)),
]


def account(fields, **how):
    made = make_dataclass("Account", fields, **how)
    made.__module__ = __name__
    return made


def named_tuple(name, fields, defaults=()):
    made = namedtuple(name, fields, defaults=defaults, module=__name__)
    made.__annotations__ = fields
    return made


def loaded_as(value, monkeypatch, *classes):
    """What pickle makes of a value when the program has other classes under the same names."""

    def use(found):
        monkeypatch.setitem(globals(), found.__name__, found)

    for old, _ in classes:
        use(old)
    pickled = pickle.dumps(value, 5)
    for _, new in classes:
        use(new)
    return pickle.loads(pickled)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("slots", [False, True])
def test_dataclasses_take_the_defaults_of_the_class(frozen, slots, monkeypatch):
    how = {"frozen": frozen, "slots": slots}
    old, new = account(FIELDS, **how), account(NEW_FIELDS, **how)
    change = evolved(old, new)
    assert change.added == ("currency = 'EUR'", "tags = list()")
    first, second = (
        change.convert(loaded_as(old(user, 3), monkeypatch, (old, new))) for user in ("ada", "bob")
    )
    assert first == new("ada", 3, "EUR", [])
    assert pickle.loads(pickle.dumps(first)) == first
    first.tags.append("changed")
    assert second.tags == []


def test_named_tuples_take_the_defaults_of_the_class_also_inside_of_each_other(monkeypatch):
    old_place = named_tuple("Place", {"city": str})
    new_place = named_tuple("Place", {"city": str, "country": str}, ["IT"])
    old = named_tuple("Account", {"user": str, "place": old_place})
    new = named_tuple("Account", {"user": str, "place": new_place, "currency": str}, ["EUR"])
    change = evolved(old, new)
    stored = old("ada", old_place("Rome"))
    loaded = loaded_as(stored, monkeypatch, (old, new), (old_place, new_place))
    converted = change.convert(loaded)
    assert converted == new("ada", new_place("Rome", "IT"), "EUR")
    assert type(converted) is new
    assert change.added == ("currency = 'EUR'", "place.country = 'IT'")


def test_a_new_field_of_a_class_needs_a_default():
    reason = refusal(account(FIELDS), account([*FIELDS, ("currency", str)]))
    assert reason == (
        "field 'currency' is new and has no default: give it one in the class Account"
    )


def test_new_fields_of_a_class_go_after_the_old_ones():
    new = account([("user", str), ("currency", str, "EUR"), ("total", int, 0)])
    assert refusal(account(FIELDS), new) == (
        "field 'currency' is in the position of 'total': new fields of a class must follow the old "
        "ones, which keep their order"
    )


def test_an_instance_of_another_class_cannot_be_converted():
    with pytest.raises(Inconvertible, match="is not an instance of Account"):
        evolved(account(FIELDS), account(NEW_FIELDS)).convert(("ada", 3))


# --- what is stored of a type ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "declared",
    [
        None,
        Types.LONG(),
        NEW,
        Types.ROW([Types.STRING()]),
        Types.TUPLE([Types.STRING(), Types.LIST(NEW)]),
        Types.MAP(Types.STRING(), Types.BASIC_ARRAY(Types.LONG())),
        as_type_info(account(NEW_FIELDS)),
    ],
)
def test_the_structure_of_a_type_survives_as_json(declared):
    structure = structure_of(declared)
    document = json.loads(json.dumps(structure.document()))
    assert TypeStructure.of_document(document) == structure


def test_the_structure_can_be_read():
    assert structure_of(OLD).document() == {"row": {"user": "String", "total": "Long"}}
