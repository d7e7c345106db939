"""What arrives in the columns of a table, and what is refused."""

import datetime
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
import pytest

pytest.importorskip("psycopg")

import psycopg

from tidegate.common import Row, Types
from tidegate.connectors.guarantee import DeliveryGuarantee
from tidegate.connectors.postgres.statements import numbered
from tidegate.core.errors import (
    ConfigError,
    DatabaseFailed,
    RowRefused,
    TableMismatch,
    UserError,
)
from tidegate.datastream.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcSink,
)
from tidegate.datastream.connectors.postgres import PostgresSink
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.testing.environments import mini_environment
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.infer import as_type_info
from tidegate.types.instant import Instant
from tidegate.types.typeinfo import ArrowTypeInfo

UTC = datetime.UTC
ORDER = Types.ROW_NAMED(["id", "buyer"], [Types.INT(), Types.STRING()])


@pytest.fixture
def database(postgres_of_module):
    """A connection to a database without tables."""
    with psycopg.connect(postgres_of_module, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
        connection.dsn = postgres_of_module
        yield connection


@pytest.fixture
def orders(database):
    database.execute("CREATE TABLE orders (id integer PRIMARY KEY, buyer varchar(5) NOT NULL)")
    return database


def write(database, records, type_info=None, table="orders", **settings):
    """Write the records through one subtask, and end."""
    sink = PostgresSink(database.dsn, table, **settings)
    write_to(sink, records, type_info)


def write_to(sink, records, type_info=None):
    format = None if type_info is None else arrow_format(type_info)
    with OperatorHarness(SinkOperator(sink, format), is_checkpointed=False) as harness:
        harness.process(records, type_info=type_info)
        harness.finish()


def rows(database, table="orders"):
    return database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


# --- values -------------------------------------------------------------------------------------

AT = datetime.datetime.fromisoformat("2024-02-29 23:59:58.123456")
VALUES = [
    (Types.BOOLEAN(), "boolean", [True, False]),
    (Types.SHORT(), "smallint", [-32768, 32767]),
    (Types.LONG(), "bigint", [-(2**63), 2**63 - 1]),
    (Types.LONG(), "integer", [-5, 5]),
    (Types.LONG(), "numeric(20,2)", [Decimal("7.00")]),
    (Types.FLOAT(), "real", [0.5, float("inf")]),
    (Types.DOUBLE(), "double precision", [0.1, -1e300, float("-inf")]),
    (Types.BIG_INT(), "numeric", [Decimal(10**60)]),
    (Types.BIG_DEC(), "numeric", [Decimal("1.2300"), Decimal("-1e-30")]),
    (Types.STRING(), "text", ["", "a", '"', "'", ",", "\\.", "\\N", "NULL", "ö\t€\r\nx", "{}"]),
    (Types.STRING(), "varchar(3)", ["abc", "äöü"]),
    (Types.STRING(), "uuid", [uuid.UUID(int=7)]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), "bytea", [b"", b"\x00\xff\\x", b'",\n']),
    (Types.SQL_DATE(), "date", [AT.date(), datetime.date(1, 1, 1)]),
    (Types.SQL_TIME(), "time", [AT.time()]),
    (Types.SQL_TIMESTAMP(), "timestamp", [AT, AT.replace(year=1904)]),
    (Types.LIST(Types.LONG()), "bigint[]", [[1, None, 3], []]),
    (Types.LIST(Types.STRING()), "text[]", [["a", None, '"', "\\", "NULL", "", "x,{y}"]]),
    (Types.LIST(Types.LIST(Types.LONG())), "bigint[]", [[[1, 2], [3, 4]]]),
    (Types.MAP(Types.STRING(), Types.LONG()), "jsonb", [{"a": 1, "b": 2}, {}]),
    (Types.LIST(Types.STRING()), "json", [["a", "b"]]),
]


@pytest.mark.parametrize(("type_info", "column", "values"), VALUES)
def test_typed_values_arrive_as_they_are(database, type_info, column, values):
    database.execute(f"CREATE TABLE things (id bigint, value {column})")
    record = Types.ROW_NAMED(["id", "value"], [Types.LONG(), type_info])
    given = [str(v) if isinstance(v, uuid.UUID) else v for v in [*values, None]]
    if type_info in (Types.LONG(), Types.BIG_INT()):
        given = [v if v is None else int(v) for v in given]
    write(database, [Row(i, value) for i, value in enumerate(given)], record, "things")
    assert [value for _, value in rows(database, "things")] == [*values, None]


def test_instants_and_nested_rows_arrive(database):
    database.execute("CREATE TABLE things (at timestamptz, what jsonb)")
    what = Types.ROW_NAMED(["size", "price"], [Types.LONG(), Types.BIG_DEC()])
    record = Types.ROW_NAMED(["at", "what"], [Types.INSTANT(), what])
    row = Row(Instant(1_700_000_000, 123_456_789), Row(3, Decimal("1.50")))
    write(database, [row, Row(None, None)], record, "things")
    at = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert rows(database, "things") == [(at, {"size": 3, "price": "1.50"}), (None, None)]


def test_values_of_arrow_types_arrive(database):
    database.execute("CREATE TABLE things (at timestamptz, kind text)")
    types = [pa.timestamp("us", "UTC"), pa.dictionary(pa.int32(), pa.string())]
    record = Types.ROW_NAMED(["at", "kind"], [ArrowTypeInfo(each) for each in types])
    at = AT.replace(tzinfo=UTC)
    write(database, [Row(at, "a"), Row(at, None)], record, "things")
    assert rows(database, "things") == [(at, "a"), (at, None)]


@dataclass
class Order:
    id: int
    buyer: str


class Sale(NamedTuple):
    buyer: str
    id: int


@pytest.mark.parametrize(
    "record", [Order(1, "Ann"), Sale("Ann", 1), {"buyer": "Ann", "id": 1}, (1, "Ann"), [1, "Ann"]]
)
def test_records_without_a_type_go_to_columns_by_name_or_by_position(orders, record):
    write(orders, [record])
    assert rows(orders) == [(1, "Ann")]


@pytest.mark.parametrize(
    ("record", "type_info"),
    [
        (Order(1, "Ann"), as_type_info(Order)),
        ((1, "Ann"), Types.TUPLE([Types.INT(), Types.STRING()])),
        (Row(1, "Ann"), Types.ROW([Types.INT(), Types.STRING()])),
        (Row("Ann", 1), Types.ROW_NAMED(["buyer", "id"], [Types.STRING(), Types.INT()])),
    ],
)
def test_typed_records_go_to_columns_by_name_or_by_position(orders, record, type_info):
    write(orders, [record], type_info)
    assert rows(orders) == [(1, "Ann")]


def test_columns_that_are_named_take_the_fields_in_order(orders):
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    write(orders, [("Ann", 1)], pair, columns=["buyer", "id"])
    write(orders, [("Bob", 2)], columns=["buyer", "id"])
    assert rows(orders) == [(1, "Ann"), (2, "Bob")]


def test_values_without_a_type_may_be_documents_and_dates(database):
    database.execute("CREATE TABLE things (id uuid, what jsonb, at timestamptz, n numeric[])")
    at = AT.replace(tzinfo=UTC)
    write(database, [(uuid.UUID(int=1), {"a": [1, None]}, at, [Decimal("1.5")])], table="things")
    assert rows(database, "things") == [(uuid.UUID(int=1), {"a": [1, None]}, at, [Decimal("1.5")])]


def test_columns_with_defaults_may_be_omitted(database):
    database.execute(
        "CREATE TABLE things (id bigint GENERATED ALWAYS AS IDENTITY, buyer text, "
        "at timestamptz NOT NULL DEFAULT now(), "
        "loud text GENERATED ALWAYS AS (upper(buyer)) STORED)"
    )
    write(database, [Row("Ann")], Types.ROW_NAMED(["buyer"], [Types.STRING()]), "things")
    ((number, buyer, at, loud),) = rows(database, "things")
    assert (number, buyer, loud) == (1, "Ann", "ANN") and at is not None


def test_a_table_may_be_named_as_in_a_statement(database):
    database.execute('CREATE SCHEMA "My shop"')
    database.execute('CREATE TABLE "My shop"."Or.ders" ("The id" integer, buyer text)')
    table = '"My shop"."Or.ders"'
    names = Types.ROW_NAMED(["The id", "buyer"], [Types.INT(), Types.STRING()])
    write(database, [Row(1, "Ann")], names, table)
    write(database, [Row(1, "Bob")], names, table, delivery_guarantee=DeliveryGuarantee.NONE)
    assert sorted(rows(database, table)) == [(1, "Ann"), (1, "Bob")]


# --- what is refused ----------------------------------------------------------------------------


def open_error(database, type_info, table="orders", **settings):
    """The error with which a job ends before its first record."""
    env = mini_environment()
    sink = PostgresSink(database.dsn, table, **settings)
    env.from_collection([], type_info).sink_to(sink)
    with pytest.raises(TableMismatch) as caught:
        env.execute()
    return str(caught.value)


def test_a_missing_table_is_named(database):
    text = open_error(database, ORDER)
    assert "table orders: PostgreSQL at" in text and "has no such table" in text
    assert 'search path: "$user", public' in text


def test_a_missing_column_is_named_with_those_that_are_there(orders):
    other = Types.ROW_NAMED(["id", "customer"], [Types.INT(), Types.STRING()])
    assert open_error(orders, other) == (
        "table public.orders: there is no column customer\n"
        "columns found: id integer not null, buyer character varying(5) not null\n"
        "columns wanted: id int32, customer string"
    )


def test_a_column_that_must_be_written_is_named(orders):
    text = open_error(orders, Types.ROW_NAMED(["id"], [Types.INT()]))
    assert "the stream has no value for buyer, which must not be null" in text


@pytest.mark.parametrize(
    ("type_info", "column"),
    [
        (Types.STRING(), "integer"),
        (Types.STRING(), "timestamp"),
        (Types.LONG(), "text"),
        (Types.LONG(), "bigint[]"),
        (Types.DOUBLE(), "bigint"),
        (Types.BOOLEAN(), "integer"),
        (Types.SQL_TIMESTAMP(), "timestamptz"),
        (Types.LIST(Types.STRING()), "integer[]"),
        (Types.MAP(Types.STRING(), Types.LONG()), "text"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "text"),
    ],
)
def test_a_column_of_another_type_is_named(database, type_info, column):
    database.execute(f"CREATE TABLE orders (id {column})")
    text = open_error(database, Types.ROW_NAMED(["id"], [type_info]))
    assert "table public.orders: id is " in text and ", which does not accept " in text


def test_tuples_need_as_many_columns_as_fields(orders):
    text = open_error(orders, Types.TUPLE([Types.INT()]))
    assert "the stream has 1 field(s) for 2 column(s)" in text


def test_a_column_that_the_server_computes_cannot_be_written(database):
    database.execute("CREATE TABLE orders (id integer GENERATED ALWAYS AS (1) STORED)")
    text = open_error(database, Types.ROW_NAMED(["id"], [Types.INT()]))
    assert "column id is computed by the server" in text


REFUSED = [
    (Row(id=2, buyer=None), "buyer", "violates not-null"),
    (Row(id=2, buyer="Robert"), "buyer", "too long"),
    (Row(id=2, buyer="a\x00"), None, "invalid byte sequence|cannot contain NUL"),
    (Row(id=1, buyer="Ann"), None, "already exists"),
]
GUARANTEES = [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE]


@pytest.mark.parametrize("type_info", [ORDER, None])
@pytest.mark.parametrize(("record", "column", "reason"), REFUSED)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_row_that_does_not_fit_is_named(orders, guarantee, record, column, reason, type_info):
    good = [Row(1, "a\n\rb"), Row(3, "x\ny")]
    with pytest.raises(RowRefused, match=reason) as caught:
        write(orders, [*good, record, Row(4, "z")], type_info, delivery_guarantee=guarantee)
    text = str(caught.value)
    assert text.startswith(f"row {record!r} does not fit ")
    if column is not None:
        assert f"column {column!r} of table public.orders" in text
    assert rows(orders) == []


def test_a_number_that_is_too_large_is_named(orders):
    longs = Types.ROW_NAMED(["id", "buyer"], [Types.LONG(), Types.STRING()])
    with pytest.raises(RowRefused, match=r"row .*2147483648.* 'id' .* out of range"):
        write(orders, [Row(1, "a"), Row(2**31, "b")], longs)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": 1}, "column 'buyer' of table public.orders: the record has id"),
        ((1, "Ann", 3), r"it has 3 field\(s\) for the columns id, buyer"),
        ((1, object()), "cannot adapt type 'object'"),
        (("one", "Ann"), "column 'id' .* invalid input syntax"),
    ],
)
def test_an_object_that_is_no_row_is_named(orders, record, reason):
    with pytest.raises(RowRefused, match=reason):
        write(orders, [record])


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="not a connection string") as caught:
        PostgresSink("host=x password=secret nonsense", "orders")
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="batch_size = 0"):
        PostgresSink("", "orders", batch_size=0)
    with pytest.raises(ConfigError, match=r'give a list of names, like \["id"\]'):
        PostgresSink("", "orders", keys="id")
    with pytest.raises(ConfigError, match=r"call set_table\(\)"):
        PostgresSink.builder().set_dsn("").build()


def test_a_user_without_write_permission_gets_an_error(orders):
    orders.execute("CREATE ROLE reader LOGIN")
    try:
        dsn = orders.dsn.replace("tidegate@", "reader@")
        with pytest.raises(
            UserError, match=r"refused writing to public\.orders: permission denied"
        ):
            write_to(PostgresSink(dsn, "orders"), [Row(1, "Ann")], ORDER)
    finally:
        orders.execute("DROP ROLE reader")


# --- the light choices --------------------------------------------------------------------------


@pytest.mark.parametrize("type_info", [ORDER, None])
def test_an_upsert_keeps_the_last_row_of_a_key(orders, type_info):
    for _ in range(2):
        records = [Row(1, "Ann"), Row(2, "Bob"), Row(1, "Eve")]
        write(orders, records, type_info, keys=["id"])
        assert rows(orders) == [(1, "Eve"), (2, "Bob")]
    write(orders, [Row(2, "Joe"), Row(3, "Kim")], type_info, keys=["id"])
    assert rows(orders) == [(1, "Eve"), (2, "Joe"), (3, "Kim")]


def test_an_upsert_of_keys_alone_adds_what_is_not_there(database):
    database.execute("CREATE TABLE pairs (a integer NOT NULL, b integer NOT NULL, UNIQUE (a, b))")
    pair = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()])
    write(database, [Row(1, 1), Row(1, 2), Row(1, 1)], pair, "pairs", keys=["b", "a"])
    assert rows(database, "pairs") == [(1, 1), (1, 2)]


def test_an_upsert_is_visible_at_the_end_of_a_step(orders):
    sink = SinkOperator(PostgresSink(orders.dsn, "orders", keys=["id"]), arrow_format(ORDER))
    with OperatorHarness(sink) as harness:
        harness.process([Row(1, "Ann")], type_info=ORDER)
        harness.flush()
        assert rows(orders) == [(1, "Ann")]
        harness.process([Row(1, "Bob")], type_info=ORDER)
        harness.snapshot()
        assert rows(orders) == [(1, "Bob")]


def test_an_upsert_needs_a_unique_key(orders):
    text = open_error(orders, ORDER, keys=["buyer"])
    assert "there is no primary key or unique index on (buyer)" in text
    orders.execute("CREATE UNIQUE INDEX ON orders (buyer) WHERE id > 3")
    assert "no primary key or unique index" in open_error(orders, ORDER, keys=["buyer"])
    assert "the key nobody is not among" in open_error(orders, ORDER, keys=["nobody"])


def test_an_upsert_needs_keys_by_which_it_finds_every_row(database):
    database.execute("CREATE TABLE pairs (a integer NOT NULL, b integer, c integer, UNIQUE (a, b))")
    pair = Types.ROW_NAMED(["a", "b", "c"], [Types.INT()] * 3)
    text = open_error(database, pair, "pairs", keys=["a", "b"])
    assert "a row whose b is null would be added again after a failure" in text
    assert "ALTER TABLE public.pairs ALTER b SET NOT NULL" in text
    if database.info.server_version < 150_000:
        return
    database.execute("CREATE UNIQUE INDEX ON pairs (a, b) NULLS NOT DISTINCT")
    for count in (1, 2):
        write(database, [Row(1, None, 0), Row(1, None, count)], pair, "pairs", keys=["a", "b"])
        assert rows(database, "pairs") == [(1, None, count)]


def test_the_type_of_a_key_may_rule_out_null(database):
    database.execute("CREATE DOMAIN number AS integer NOT NULL")
    database.execute("CREATE TABLE orders (id number UNIQUE, buyer text)")
    for name in ("Ann", "Bob"):
        write(database, [Row(1, name)], ORDER, keys=["id"])
    assert rows(database) == [(1, "Bob")]


@pytest.mark.parametrize(
    ("record", "reason"),
    [(Row(2, None), "column 'buyer' .* not-null"), (Row(2, "Robert"), "Row.*Robert.*'buyer'")],
)
def test_a_row_that_an_upsert_cannot_write_is_named(orders, record, reason):
    with pytest.raises(RowRefused, match=reason):
        write(orders, [Row(1, "Ann"), record], ORDER, keys=["id"])
    assert rows(orders) == []


def test_plain_inserts_are_visible_at_the_end_of_a_step(orders):
    sink = PostgresSink(orders.dsn, "orders", delivery_guarantee=DeliveryGuarantee.AT_LEAST_ONCE)
    with OperatorHarness(SinkOperator(sink, arrow_format(ORDER))) as harness:
        harness.process([Row(1, "Ann")], type_info=ORDER)
        assert rows(orders) == []
        harness.flush()
        assert rows(orders) == [(1, "Ann")]


def test_every_kind_says_what_it_guarantees():
    at_least_once = PostgresSink("", "t", delivery_guarantee=DeliveryGuarantee.AT_LEAST_ONCE)
    said = {
        PostgresSink("", "t").delivery(),
        PostgresSink.builder().set_dsn("").set_table("t").set_keys("a", "b").build().delivery(),
        at_least_once.delivery(),
    }
    assert {(delivery.guarantee.shown, delivery.why) for delivery in said} == {
        ("exactly once", "commits prepared transactions with the checkpoint"),
        ("exactly once", "upserts by a, b: repetition changes nothing"),
        ("at least once", "inserts rows again after a failure"),
    }


# --- statements of the user's own ---------------------------------------------------------------


def jdbc(database, sql, type_info=ORDER, **options):
    url = f"jdbc:postgresql://{database.dsn.rpartition('@')[2]}"
    connection = (
        JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        .with_url(url)
        .with_driver_name("org.postgresql.Driver")
        .with_user_name("tidegate")
        .with_password("none")
        .build()
    )
    execution = (
        JdbcExecutionOptions.builder()
        .with_batch_interval_ms(1000)
        .with_batch_size(options.get("batch_size", 200))
        .with_max_retries(options.get("retries", 5))
        .build()
    )
    return JdbcSink.sink(sql, type_info, connection, execution)


def test_a_statement_runs_for_every_record(orders):
    sink = jdbc(orders, "INSERT INTO orders (id, buyer) VALUES (?, ? || '%?')", batch_size=2)
    env = mini_environment()
    env.from_collection([Row(i, "a") for i in range(5)], ORDER).add_sink(sink)
    env.execute()
    assert rows(orders) == [(i, "a%?") for i in range(5)]


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batches_of_statements_have_no_limit_if_their_size_is_not_positive(orders, batch_size):
    sink = jdbc(orders, "INSERT INTO orders VALUES (?, ?)", batch_size=batch_size)
    write_to(sink, [Row(1, "a"), Row(2, "b")])
    assert rows(orders) == [(1, "a"), (2, "b")]


def test_a_batch_is_tried_again_on_a_new_connection(orders):
    sink = jdbc(orders, "INSERT INTO orders VALUES (?, ?)")
    with OperatorHarness(SinkOperator(sink)) as harness:
        harness.process([Row(1, "a")])
        orders.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'tidegate' AND datname = current_database()"
        )
        harness.flush()
    assert rows(orders) == [(1, "a")]


def test_a_batch_is_not_tried_again_without_retries(orders):
    sink = jdbc(orders, "SELECT pg_terminate_backend(pg_backend_pid()), ?, ?", retries=0)
    with pytest.raises(DatabaseFailed, match="failed while running its statement"):
        write_to(sink, [Row(1, "a")])


def test_a_record_that_a_statement_refuses_is_named(orders):
    sink = jdbc(orders, "INSERT INTO orders VALUES (?, ?)")
    with pytest.raises(RowRefused, match=r"row \(2, 'Robert'\) .* table orders: value too long"):
        write_to(sink, [Row(1, "a"), Row(2, "Robert"), Row(3, "b")])
    assert rows(orders) == []


def test_question_marks_in_quotes_and_comments_are_none_of_ours():
    statement = "/* ? */ SELECT '?''?', \"?\", ?, $x$ ? $x$, a ?? b, 5 % 2 -- ?\n WHERE a = ?"
    assert numbered(statement) == (
        b"/* ? */ SELECT '?''?', \"?\", %s, $x$ ? $x$, a ? b, 5 %% 2 -- ?\n WHERE a = %s",
        2,
    )


def test_jdbc_urls_are_those_of_postgresql():
    options = JdbcConnectionOptions(
        "jdbc:postgresql://db:5433/shop?currentSchema=s&reWriteBatchedInserts=true", "me", "p@ss"
    )
    assert options.dsn() == (
        "postgresql://db:5433/shop?options=-csearch_path%3Ds&user=me&password=p%40ss"
    )
    assert "p@ss" not in repr(options)
    with pytest.raises(ConfigError, match="only PostgreSQL is supported"):
        JdbcConnectionOptions("jdbc:mysql://db/shop?password=secret").dsn()
    with pytest.raises(ConfigError, match=r"1 placeholder\(s\) for 2 field\(s\)"):
        JdbcSink.sink("DELETE FROM orders WHERE id = ?", ORDER, options)
