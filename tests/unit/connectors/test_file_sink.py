import dataclasses
import json
from datetime import date
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from tests.unit.connectors.reading import records_of
from tidegate.connectors.file_formats import CsvFormat, JsonLinesFormat
from tidegate.connectors.file_sink import (
    CsvEncoding,
    Encoder,
    FileSink,
    JsonLinesEncoding,
    ParquetEncoding,
)
from tidegate.connectors.files import FileSource
from tidegate.core.errors import ConfigError, ExternalError
from tidegate.operators.endpoints import SinkOperator
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

POINT = Types.ROW_NAMED(["name", "size"], [Types.STRING(), Types.LONG()])
ROWS = [Row(name="a,b", size=1), Row(name='c"', size=None), Row(name="ü", size=3)]


def write(sink, *batches, type_info=None, subtask=0, parallelism=1):
    with OperatorHarness(SinkOperator(sink), subtask=subtask, parallelism=parallelism) as harness:
        for batch in batches:
            harness.process(batch, type_info=type_info)
            harness.snapshot()
        harness.finish()
        harness.snapshot()


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def test_every_subtask_writes_a_file_of_lines(tmp_path):
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    write(sink, ["a", "b"], ["c"], subtask=0, parallelism=2)
    write(sink, [1, 2], subtask=1, parallelism=2)
    assert names_in(tmp_path / "out") == ["part-0", "part-1"]
    assert (tmp_path / "out" / "part-0").read_text() == "a\nb\nc\n"
    assert (tmp_path / "out" / "part-1").read_text() == "1\n2\n"


def test_a_file_appears_only_when_the_input_has_ended(tmp_path):
    sink = FileSink(str(tmp_path / "out"), Encoder())
    with OperatorHarness(SinkOperator(sink)) as harness:
        harness.process(["a"])
        harness.flush()
        assert names_in(tmp_path / "out") == [".part-0.inprogress"]
        assert (tmp_path / "out" / ".part-0.inprogress").read_text() == "a\n"
    assert names_in(tmp_path / "out") == []


def test_files_of_an_earlier_job_are_not_overwritten_unasked(tmp_path):
    write(FileSink(str(tmp_path), Encoder()), ["a"])
    with pytest.raises(ConfigError, match="it holds files of another job"):
        FileSink(str(tmp_path), Encoder())
    write(FileSink(str(tmp_path), Encoder(), overwrite=True), ["b"])
    assert (tmp_path / "part-0").read_text() == "b\n"


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "out").write_text("a file")
    sink = FileSink(str(tmp_path / "out" / "deeper"), Encoder())
    with pytest.raises(ExternalError, match=r"part-0.inprogress cannot be written"):
        OperatorHarness(SinkOperator(sink))


def test_csv_is_read_back_as_it_was(tmp_path):
    write(FileSink(str(tmp_path), CsvEncoding()), ROWS[:2], ROWS[2:], type_info=POINT)
    assert names_in(tmp_path) == ["part-0.csv"]
    assert records_of(FileSource(str(tmp_path), CsvFormat(POINT))) == [ROWS]


class Point(NamedTuple):
    name: str
    size: int


@dataclasses.dataclass
class Event:
    day: date
    points: list[Point]


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([("a", 1), ("b;", 2)], 'a;1\n"b;";2\n'),
        ([Row("a", 1)], "a;1\n"),
        ([Row(name="a", size=1)], "name;size\na;1\n"),
        ([Point("a", 1)], "name;size\na;1\n"),
        ([5, 6], "5\n6\n"),
    ],
)
def test_csv_of_untyped_records_has_the_names_that_they_have(tmp_path, records, text):
    write(FileSink(str(tmp_path), CsvEncoding(delimiter=";")), records)
    assert (tmp_path / "part-0.csv").read_text() == text


def test_csv_of_nested_types_is_written_too(tmp_path):
    kind = Types.ROW_NAMED(["tags"], [Types.LIST(Types.STRING())])
    write(FileSink(str(tmp_path), CsvEncoding()), [Row(tags=["a"])], type_info=kind)
    assert (tmp_path / "part-0.csv").read_text() == "tags\n['a']\n"


def test_json_lines_are_objects_where_records_have_names(tmp_path):
    event = Event(date(2024, 2, 29), [Point("ü", 1)])
    write(FileSink(str(tmp_path), JsonLinesEncoding()), [ROWS[1], event, (1, "x"), {"k": Row(2)}])
    lines = (tmp_path / "part-0.jsonl").read_text().splitlines()
    assert "ü" in lines[1]
    assert [json.loads(line) for line in lines] == [
        {"name": 'c"', "size": None},
        {"day": "2024-02-29", "points": [{"name": "ü", "size": 1}]},
        [1, "x"],
        {"k": [2]},
    ]


def test_json_lines_are_read_back_as_they_were(tmp_path):
    write(FileSink(str(tmp_path), JsonLinesEncoding()), ROWS, type_info=POINT)
    assert records_of(FileSource(str(tmp_path), JsonLinesFormat(POINT))) == [ROWS]


def test_parquet_gathers_small_batches_into_row_groups(tmp_path):
    schema = arrow_format(POINT).schema
    sink = FileSink.for_bulk_format(str(tmp_path), ParquetEncoding(schema)).build()
    write(sink, *[ROWS] * 5, type_info=POINT)
    file = pq.ParquetFile(tmp_path / "part-0.parquet")
    assert (file.num_row_groups, file.metadata.num_rows) == (1, 15)
    assert file.read().slice(0, 3).to_pylist() == [row.as_dict() for row in ROWS]


def test_a_subtask_without_records_writes_a_file_without_rows(tmp_path):
    schema = pa.schema([("n", pa.int64())])
    write(FileSink(str(tmp_path), ParquetEncoding(schema)))
    assert pq.read_table(tmp_path / "part-0.parquet").num_rows == 0
