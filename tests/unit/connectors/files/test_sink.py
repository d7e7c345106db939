import dataclasses
import errno
import json
import re
from datetime import date
from decimal import Decimal
from typing import NamedTuple

import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from tests.unit.connectors.reading import records_of
from tidegate.connectors.files import part_files
from tidegate.connectors.files.encodings import (
    CsvEncoding,
    Encoder,
    JsonLinesEncoding,
    ParquetEncoding,
)
from tidegate.connectors.files.formats import CsvFormat, JsonLinesFormat
from tidegate.connectors.files.orc import OrcEncoding, OrcFormat
from tidegate.connectors.files.rolling import BucketAssigner, RollingPolicy
from tidegate.connectors.files.sink import FileSink, OutputFileConfig
from tidegate.connectors.files.source import FileSource
from tidegate.core.errors import (
    ConfigError,
    ExternalError,
    LeaseEnded,
    UnwritableOutput,
    UserError,
)
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.storage import local
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

POINT = Types.ROW_NAMED(["name", "size"], [Types.STRING(), Types.LONG()])
ROWS = [Row(name="a,b", size=1), Row(name='c"', size=None), Row(name="ü", size=3)]


def opened(sink, **settings):
    return OperatorHarness(SinkOperator(sink), **settings)


def write(sink, *batches, type_info=None, **settings):
    """A bounded job without checkpoints."""
    with opened(sink, is_checkpointed=False, **settings) as harness:
        for batch in batches:
            harness.process(batch, type_info=type_info)
            harness.flush()
        harness.finish()


def finished(directory):
    """The files that readers see."""
    return sorted(
        path for path in directory.rglob("*") if path.is_file() and not path.name.startswith(".")
    )


def hidden(directory):
    return sorted(path for path in directory.rglob(".*") if path.is_file())


def only_file(directory):
    (found,) = finished(directory)
    return found


def lines_in(directory):
    return [path.read_text().splitlines() for path in finished(directory)]


def test_every_subtask_writes_files_of_its_own(tmp_path):
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    write(sink, ["a", "b"], ["c"], subtask=0, parallelism=2)
    write(sink, [1, 2], subtask=1, parallelism=2)
    assert [path.name[:7] for path in finished(tmp_path / "out")] == ["part-0-", "part-1-"]
    assert lines_in(tmp_path / "out") == [["a", "b", "c"], ["1", "2"]]


def test_without_checkpoints_a_file_appears_when_the_input_has_ended(tmp_path):
    sink = FileSink(str(tmp_path / "out"), Encoder())
    with opened(sink, is_checkpointed=False) as harness:
        harness.process(["a"])
        harness.flush()
        assert finished(tmp_path) == []
        assert len(hidden(tmp_path)) == 1
    assert hidden(tmp_path) == finished(tmp_path) == []


def test_a_file_appears_when_its_checkpoint_is_complete_and_not_before(tmp_path):
    with opened(FileSink(str(tmp_path), Encoder())) as harness:
        harness.process(["a"])
        harness.snapshot()
        harness.process(["b"])
        assert finished(tmp_path) == []
        harness.complete_checkpoint()
        assert lines_in(tmp_path) == [["a"]]
        harness.complete_checkpoint()
        harness.snapshot()
        harness.complete_checkpoint()
        assert sorted(lines_in(tmp_path)) == [["a"], ["b"]]


def test_what_an_aborted_checkpoint_held_is_committed_with_the_next(tmp_path):
    with opened(FileSink(str(tmp_path), Encoder())) as harness:
        harness.process(["a"])
        harness.snapshot()
        harness.abort_checkpoint()
        harness.process(["b"])
        harness.snapshot()
        harness.complete_checkpoint()
        assert sorted(lines_in(tmp_path)) == [["a"], ["b"]]


def test_a_restored_sink_commits_what_its_checkpoint_holds_and_forgets_the_rest(tmp_path):
    with opened(FileSink(str(tmp_path), Encoder())) as harness:
        harness.process(["before"])
        snapshot = harness.snapshot()
        harness.process(["lost"])
        harness.snapshot()
        harness.process(["lost too"])
        # Neither closed nor told of the checkpoint: its process was killed.
        with harness.restore(snapshot) as restored:
            assert lines_in(tmp_path) == [["before"]]
            assert hidden(tmp_path) == []
            restored.process(["again"])
            restored.snapshot()
            restored.complete_checkpoint()
        assert sorted(lines_in(tmp_path)) == [["again"], ["before"]]
        with harness.restore(snapshot):
            assert len(finished(tmp_path)) == 2


def test_a_sink_without_a_lease_gives_no_file_its_name_and_deletes_none(tmp_path):
    sink = FileSink(str(tmp_path), Encoder())
    with opened(sink) as harness:
        harness.process(["a"])
        snapshot = harness.snapshot()
        harness.process(["b"])
        before = hidden(tmp_path)
        harness.has_lease = False
        for act in (
            harness.complete_checkpoint,
            lambda: opened(sink, restore_from=[snapshot], has_lease=False),
            lambda: opened(sink, has_lease=False),
        ):
            with pytest.raises(LeaseEnded):
                act()
    assert finished(tmp_path) == []
    assert hidden(tmp_path) == before


class NoSpaceForTheHeader(Encoder):
    def open(self, stream):
        self.stream = stream
        raise OSError(errno.ENOSPC, "no space")


def test_a_file_whose_header_finds_no_space_is_closed_and_the_reason_told(tmp_path):
    with opened(FileSink(str(tmp_path), NoSpaceForTheHeader())) as harness:
        with pytest.raises(UnwritableOutput, match="the disk is full; free some space"):
            harness.process(["a"])
        open_files = [each.path for each in psutil.Process().open_files()]
    assert [path for path in open_files if path.startswith(str(tmp_path))] == []


def test_a_pending_file_that_is_gone_is_named(tmp_path):
    with opened(FileSink(str(tmp_path), Encoder())) as harness:
        harness.process(["a"])
        snapshot = harness.snapshot()
        (file,) = hidden(tmp_path)
        file.unlink()
        with pytest.raises(ExternalError, match="which a checkpoint references, is missing"):
            harness.restore(snapshot)


def test_files_left_by_subtasks_that_are_no_more_are_removed(tmp_path):
    sink = FileSink(str(tmp_path), Encoder())
    first = opened(sink, subtask=0, parallelism=3)
    third = opened(sink, subtask=2, parallelism=3)
    snapshots = [first.snapshot(), third.snapshot()]
    third.process(["lost"])
    assert len(hidden(tmp_path)) == 1
    with first.restore(*snapshots, parallelism=2, subtask=0):
        assert hidden(tmp_path) == []


def test_a_path_that_is_a_file_is_refused_before_the_first_record(tmp_path):
    path = tmp_path / "out"
    path.write_text("")
    with pytest.raises(ConfigError, match="it is a file: specify a directory"):
        opened(FileSink(str(path), Encoder()))


def test_a_directory_that_cannot_be_created_is_found_before_the_first_record(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableOutput, match=r"file/out cannot be written"):
        opened(FileSink(str(tmp_path / "file" / "out"), Encoder()))


def test_a_second_run_adds_its_files_or_replaces_what_is_there(tmp_path):
    for number in range(3):
        write(FileSink(str(tmp_path), Encoder()), [str(number)], job_id=f"{number}0000000")
    assert sorted(lines_in(tmp_path)) == [["0"], ["1"], ["2"]]
    write(FileSink(str(tmp_path), Encoder(), overwrite=True), ["3"], job_id="30000000")
    assert lines_in(tmp_path) == [["3"]]


def test_a_run_that_starts_over_replaces_its_own_files_and_no_others(tmp_path):
    sink = FileSink(str(tmp_path), Encoder())
    for name, job in (("others", "10000000"), ("mine", "20000000")):
        write(sink, [name], job_id=job)
    write(sink, ["again"], job_id="20000000", attempt=2)
    assert sorted(lines_in(tmp_path)) == [["again"], ["others"]]


def test_by_default_a_builder_makes_a_bucket_for_every_hour(tmp_path):
    write(FileSink.for_row_format(str(tmp_path), Encoder()).build(), ["a"])
    (bucket,) = tmp_path.iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d--\d\d", bucket.name)
    assert lines_in(bucket) == [["a"]]


def test_a_file_that_is_full_is_followed_by_the_next(tmp_path):
    rolling = RollingPolicy.default_rolling_policy(part_size=4)
    builder = FileSink.for_row_format(str(tmp_path), Encoder()).with_rolling_policy(rolling)
    write(builder.build(), ["abc"], ["d"], ["e"], ["f"])
    assert sorted(lines_in(tmp_path)) == [["abc"], ["d", "e"], ["f"]]


def test_old_and_idle_files_are_ended_by_the_clock():
    policy = RollingPolicy.default_rolling_policy("1 kb", 10_000, 1_000)
    assert not policy.is_full(10, opened_at=0.0, written_at=9.5, now=9.9)
    assert policy.is_full(1024, opened_at=0.0, written_at=0.0, now=0.0)
    assert policy.is_full(10, opened_at=0.0, written_at=9.5, now=10.0)
    assert policy.is_full(10, opened_at=0.0, written_at=2.0, now=3.0)
    assert not RollingPolicy.on_checkpoint_rolling_policy().is_full(1 << 40, 0.0, 0.0, 1e9)


def test_records_go_into_the_bucket_that_a_function_chooses(tmp_path):
    buckets = BucketAssigner.by(lambda record: record[0])
    builder = FileSink.for_row_format(str(tmp_path), Encoder(lambda record: record[1]))
    names = OutputFileConfig.builder().with_part_suffix(".txt").build()
    sink = builder.with_bucket_assigner(buckets).with_output_file_config(names).build()
    write(sink, [("x", "1"), ("y", "2"), ("x", "3")], [("x", "4")])
    found = {path.parent.name: path.read_text().split() for path in finished(tmp_path)}
    assert found == {"x": ["1", "3", "4"], "y": ["2"]}
    assert {path.suffix for path in finished(tmp_path)} == {".txt"}


@pytest.mark.parametrize("pattern", ["yyyy-MM-dd", "%Y-%m-%d"])
def test_a_date_pattern_names_buckets_by_the_time_of_writing(pattern):
    buckets = BucketAssigner.date_time_bucket_assigner(pattern)
    batch = Batch.of_records(["a"])
    assert buckets.split(batch, 12 * 3600.0) == [("1970-01-01", batch)]


def test_csv_is_read_back_as_it_was(tmp_path):
    write(FileSink(str(tmp_path), CsvEncoding()), ROWS[:2], ROWS[2:], type_info=POINT)
    assert only_file(tmp_path).suffix == ".csv"
    assert records_of(FileSource(str(tmp_path), CsvFormat(POINT))) == [ROWS]


@pytest.mark.parametrize("encoding", [CsvEncoding(), CsvEncoding(names=["n"])])
def test_none_in_the_only_column_of_a_csv_is_a_row_too(tmp_path, encoding):
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    numbers = [Row(n=1), Row(n=None), Row(n=3)]
    write(FileSink(str(tmp_path), encoding), numbers, [Row(n=None)], type_info=kind)
    source = FileSource(str(tmp_path), CsvFormat(kind))
    assert records_of(source) == [[*numbers, Row(n=None)]]


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
    assert only_file(tmp_path).read_text() == text


@pytest.mark.parametrize("encoding", [CsvEncoding(), CsvEncoding(names=["raw"])])
def test_bytes_in_a_csv_are_text(tmp_path, encoding):
    kind = Types.ROW_NAMED(["raw"], [Types.PRIMITIVE_ARRAY(Types.BYTE())])
    rows = [Row(raw=b"a,b"), Row(raw="é".encode())]
    write(FileSink(str(tmp_path), encoding), rows, type_info=kind)
    assert records_of(FileSource(str(tmp_path), CsvFormat(kind))) == [rows]


def test_a_slice_of_nested_values_is_written_as_orc(tmp_path):
    kind = Types.ROW_NAMED(
        ["pair", "price", "pairs"],
        [
            Types.TUPLE([Types.LONG(), Types.STRING()]),
            Types.BIG_DEC(),
            Types.LIST(Types.TUPLE([Types.LONG(), Types.STRING()])),
        ],
    )
    pairs = [(number, None) if number % 3 else None for number in range(9)]
    rows = [
        Row(pair=pair, price=pair and Decimal(pair[0]), pairs=pair and [pair, None])
        for pair in pairs
    ]
    format = arrow_format(kind)
    batch = Batch.of_columns(format.encode(rows), format)
    with opened(FileSink(str(tmp_path), OrcEncoding(format)), is_checkpointed=False) as harness:
        harness.process_batch(batch.slice(2, 7))
        harness.finish()
    assert records_of(FileSource(str(tmp_path), OrcFormat(kind))) == [rows[2:7]]


def test_csv_of_nested_types_is_written_too(tmp_path):
    kind = Types.ROW_NAMED(["tags"], [Types.LIST(Types.STRING())])
    write(FileSink(str(tmp_path), CsvEncoding()), [Row(tags=["a"])], type_info=kind)
    assert only_file(tmp_path).read_text() == "tags\n['a']\n"


def test_json_lines_are_objects_where_records_have_names(tmp_path):
    event = Event(date(2024, 2, 29), [Point("ü", 1)])
    write(FileSink(str(tmp_path), JsonLinesEncoding()), [ROWS[1], event, (1, "x"), {"k": Row(2)}])
    lines = only_file(tmp_path).read_text().splitlines()
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
    file = pq.ParquetFile(only_file(tmp_path))
    assert (file.num_row_groups, file.metadata.num_rows) == (1, 15)
    assert file.read().slice(0, 3).to_pylist() == [row.as_dict() for row in ROWS]


@pytest.mark.parametrize(("is_table", "files"), [(True, 1), (False, 0)])
def test_only_a_table_has_a_file_without_records(tmp_path, is_table, files):
    schema = pa.schema([("n", pa.int64())])
    write(FileSink(str(tmp_path), ParquetEncoding(schema), is_table=is_table))
    assert [pq.read_table(path).num_rows for path in finished(tmp_path)] == [0] * files


def test_sinks_of_one_job_that_share_a_directory_leave_each_others_files_alone(tmp_path):
    sink = FileSink(str(tmp_path), Encoder())
    first, second = opened(sink, uid="first"), opened(sink, uid="second")
    first.process(["a"])
    snapshot = first.snapshot()
    with second.restore(second.snapshot()), first.restore(snapshot):
        assert lines_in(tmp_path) == [["a"]]


@pytest.mark.parametrize("prefix", ["part", "part-b"])
def test_a_sink_that_overwrites_keeps_what_other_sinks_of_its_job_have_finished(tmp_path, prefix):
    sink = FileSink(str(tmp_path), Encoder(), overwrite=True)
    others = FileSink(str(tmp_path), Encoder(), overwrite=True, names=OutputFileConfig(prefix))
    write(sink, ["old"], uid="first", job_id="10000000")
    write(others, ["a"], uid="first", job_id="20000000")
    write(sink, ["lost"], uid="second", job_id="20000000")
    write(sink, ["b"], uid="second", job_id="20000000", attempt=2)
    assert sorted(lines_in(tmp_path)) == [["a"], ["b"]]


def test_a_job_without_checkpoints_that_starts_fresh_replaces_what_it_had_committed(tmp_path):
    write(FileSink(str(tmp_path), Encoder()), ["a"])
    with opened(FileSink(str(tmp_path), Encoder()), attempt=2, is_checkpointed=False) as harness:
        harness.process(["a"])
        harness.finish()
    assert lines_in(tmp_path) == [["a"]]


def test_a_commit_that_was_interrupted_between_copy_and_deletion_is_repeated(tmp_path):
    with opened(FileSink(str(tmp_path), Encoder())) as harness:
        harness.process(["a"])
        snapshot = harness.snapshot()
        (pending,) = hidden(tmp_path)
        copy = tmp_path / pending.name[1:].partition(".")[0]
        copy.write_bytes(pending.read_bytes())
        with harness.restore(snapshot):
            assert finished(tmp_path) == [copy]
            assert hidden(tmp_path) == []


def test_an_empty_batch_makes_no_file(tmp_path):
    write(FileSink(str(tmp_path), Encoder()), [])
    assert finished(tmp_path) == []


def test_more_buckets_than_files_may_be_open_are_written_too(tmp_path):
    sink = FileSink(str(tmp_path), Encoder(), buckets=BucketAssigner.by(lambda n: f"b{n % 300}"))
    write(sink, list(range(600)))
    numbers = sorted(int(line) for lines in lines_in(tmp_path) for line in lines)
    assert numbers == list(range(600))
    assert len(list(tmp_path.iterdir())) == 300


@pytest.mark.parametrize("bucket", ["../elsewhere", "/elsewhere"])
def test_a_bucket_outside_of_the_directory_is_refused(tmp_path, bucket):
    sink = FileSink(str(tmp_path), Encoder(), buckets=BucketAssigner.by(lambda record: bucket))
    with opened(sink) as harness, pytest.raises(UserError, match="is outside the sink's directory"):
        harness.process(["a"])


def test_a_prepared_file_is_on_the_disk_with_all_its_directories(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(part_files, "sync_directory", synced.append)
    monkeypatch.setattr(local, "sync_directory", synced.append)
    sink = FileSink(
        str(tmp_path / "new" / "sink"),
        Encoder(str),
        buckets=BucketAssigner.by(lambda record: "bucket/of"),
    )
    with opened(sink) as harness:
        assert set(synced) == {tmp_path, tmp_path / "new"}
        harness.process(["a"])
        harness.snapshot(1)
    root = tmp_path / "new" / "sink"
    assert {root, root / "bucket", root / "bucket" / "of"} <= set(synced)


def test_a_directory_whose_parent_cannot_be_read_is_written_to_if_it_exists(tmp_path, monkeypatch):
    def sync(directory):
        if directory == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(part_files, "sync_directory", sync)
    monkeypatch.setattr(local, "sync_directory", sync)
    (tmp_path / "given").mkdir()
    write(FileSink(str(tmp_path / "given"), Encoder()), ["a"])
    assert lines_in(tmp_path / "given") == [["a"]]
    with pytest.raises(UnwritableOutput, match="Permission denied"):
        opened(FileSink(str(tmp_path / "new"), Encoder()))
