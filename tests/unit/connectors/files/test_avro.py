"""Values of Avro as Python programs expect them."""

import datetime as dt
import io
import time

import pytest

from tidegate.connectors.files.avro_schema import AvroSchema, fastavro, from_avro, to_avro
from tidegate.types.typeinfo import Types


@pytest.fixture
def in_tokyo(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
@pytest.mark.parametrize("logical", ["local-timestamp-micros", "timestamp-micros"])
def test_times_do_not_depend_on_the_zone_of_the_machine(logical):
    kind = {"type": "long", "logicalType": logical}
    schema = AvroSchema({"type": "record", "name": "r", "fields": [{"name": "at", "type": kind}]})
    assert schema.type_info() == Types.ROW_NAMED(["at"], [Types.SQL_TIMESTAMP()])
    record = {"at": dt.datetime.fromisoformat("1969-12-31T23:59:59.000005")}
    file = io.BytesIO()
    fastavro().writer(file, schema.parsed, [to_avro(record)])
    file.seek(0)
    assert list(map(from_avro, fastavro().reader(file))) == [record]
