import bz2
import gzip
import io
import pickle
from datetime import date, timedelta

import fsspec
import pyarrow as pa
import pytest
from fsspec.spec import AbstractFileSystem
from pyarrow import parquet as pq

from tests.unit.connectors.reading import read_all, reader_of, records_of
from tidegate.connectors.files.avro import AvroEncoding, AvroFormat
from tidegate.connectors.files.avro_schema import AvroSchema
from tidegate.connectors.files.formats import CsvFormat, JsonLinesFormat, StreamFormat
from tidegate.connectors.files.lines import LineSplit
from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.source import FileSource, WatchedFiles
from tidegate.connectors.source import Boundedness
from tidegate.core.clock import ManualClock
from tidegate.core.errors import ConfigError, ExternalError, MissingField, UnreadableInput
from tidegate.stream.batch import Batch
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

TEXT = StreamFormat.text_line_format()
POINT = Types.ROW_NAMED(["name", "size"], [Types.STRING(), Types.LONG()])


def rows(*pairs):
    return [Row(name=name, size=size) for name, size in pairs]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"\n\na\n", ["", "", "a"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        ("grün\u2028x\n".encode(), ["grün\u2028x"]),
    ],
)
def test_lines_are_records_without_their_ends(tmp_path, content, lines):
    (tmp_path / "words.txt").write_bytes(content)
    assert records_of(FileSource(str(tmp_path / "words.txt"), TEXT)) == [lines]


def test_a_line_longer_than_a_block_is_whole(tmp_path):
    lines = ["x" * 3_000_000, "y", "z" * 2_000_000]
    (tmp_path / "long.txt").write_text("\n".join(lines))
    assert records_of(FileSource(str(tmp_path / "long.txt"), TEXT)) == [lines]


def test_a_large_file_is_read_by_all_readers_and_each_line_once(tmp_path):
    lines = [f"line {i} {'x' * (i % 97)}" for i in range(60_000)]
    (tmp_path / "large.txt").write_text("\n".join(lines))
    shares = records_of(FileSource(str(tmp_path / "large.txt"), TEXT), parallelism=3)
    assert all(len(share) > 10_000 for share in shares)
    assert [line for share in shares for line in share] == lines


def test_a_split_that_begins_at_a_line_start_has_that_line(tmp_path):
    path = str(tmp_path / "words.txt")
    (tmp_path / "words.txt").write_text("ab\ncd\nef\n")
    source = FileSource(path, TEXT)
    for cut in range(10):
        splits = [LineSplit(path, 0, cut), LineSplit(path, cut, 9)]
        assert read_all(reader_of(source, splits=splits)) == ["ab", "cd", "ef"]


def test_another_charset_is_read(tmp_path):
    (tmp_path / "latin.txt").write_bytes("grün\n".encode("latin-1"))
    source = FileSource(str(tmp_path / "latin.txt"), StreamFormat.text_line_format("latin-1"))
    assert records_of(source) == [["grün"]]


def test_bytes_that_are_no_text_name_file_and_line_after_the_good_lines(tmp_path):
    path = tmp_path / "mixed.txt"
    path.write_bytes(b"good\nfine\n\xff\xfe\nmore\n")
    reader = reader_of(FileSource(str(path), TEXT))
    assert reader.poll(100).batch.records == ["good", "fine"]
    with pytest.raises(UnreadableInput) as error:
        reader.poll(100)
    assert str(error.value) == (
        f"{path}, line 3: byte 0xff is not utf-8 text; specify the charset of the file"
    )


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_text_is_one_split_and_can_be_sought(tmp_path, suffix, compress):
    lines = [f"line {i}" for i in range(300_000)]
    path = tmp_path / f"words.txt{suffix}"
    path.write_bytes(compress("\n".join(lines).encode()))
    source = FileSource(str(path), TEXT)
    reader = reader_of(source)
    before = reader.poll(123_456).batch.records
    rest = read_all(reader_of(source, splits=reader.snapshot()), max_records=100_000)
    assert before + rest == lines


def test_directories_are_read_by_name_without_hidden_files(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("b.txt", "a.txt", "deep/c.txt", ".d.txt", "_SUCCESS", ".hidden/e.txt"):
        (tmp_path / name).write_text(name)
    assert records_of(FileSource(str(tmp_path), TEXT)) == [["a.txt", "b.txt", "deep/c.txt"]]
    assert records_of(FileSource([str(tmp_path), str(tmp_path / "a.txt")], TEXT)) == [
        ["a.txt", "b.txt", "deep/c.txt"]
    ]


def test_a_url_is_a_path_too(tmp_path):
    (tmp_path / "a b.txt").write_text("x\n")
    assert records_of(FileSource(f"file://{tmp_path}", TEXT)) == [["x"]]
    assert records_of(FileSource(f"file://{tmp_path}/a%20b.txt", TEXT)) == [["x"]]


def test_a_url_without_a_file_system_is_named():
    with pytest.raises(ExternalError, match="gopher://x/y: no file system for it"):
        records_of(FileSource("gopher://x/y", TEXT))


def test_files_of_a_url_with_settings_keep_them(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"x"))
    (split,) = FileSource(f"file://{tmp_path}?", TEXT).create_enumerator().next_splits(1)[0]
    assert split.path == f"file://{tmp_path}/a.txt.gz?"
    assert records_of(FileSource(f"file://{tmp_path}?", TEXT)) == [["x"]]


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(UnreadableInput, match=r"absent\.txt: there is no such file"):
        records_of(FileSource(str(tmp_path / "absent.txt"), TEXT))


def test_a_file_that_was_removed_after_it_was_found_is_named(tmp_path):
    path = tmp_path / "gone.txt"
    path.write_text("x")
    reader = reader_of(FileSource(str(path), TEXT))
    path.unlink()
    with pytest.raises(UnreadableInput, match=r"gone\.txt.*keep files until the job has read"):
        reader.poll(1)


@pytest.mark.parametrize("taken", [0, 3])
def test_a_file_that_became_shorter_after_it_was_found_is_named(tmp_path, taken):
    path = tmp_path / "log.txt"
    path.write_text("".join(f"line {i}\n" for i in range(9)))
    source = FileSource(str(path), TEXT)
    splits = LineSplit(str(path), 0, 63, 7 * taken), LineSplit(str(path), 35, 63)
    path.write_text("line 0\n")
    for split in splits:
        with pytest.raises(UnreadableInput, match=r"log\.txt: .* byte 63 when the job found it"):
            read_all(reader_of(source, splits=[split]))


FIRST, SECOND = ([(f"{word}{i}", i) for i in range(1000)] for word in ("old", "newer"))


def write_lines(path, pairs):
    path.write_text("name,size\n" + "".join(f"{name},{size}\n" for name, size in pairs))


def write_compressed(path, pairs):
    path.write_bytes(gzip.compress("".join(f"{name},{size}\n" for name, size in pairs).encode()))


def write_avro(path, pairs):
    schema = AvroSchema.parse_string(
        '{"type": "record", "name": "Point", "fields": [{"name": "name", "type": "string"}]}'
    )
    with path.open("wb") as file:
        encoder = AvroEncoding(schema).open(file)
        encoder.write(Batch.of_records([{"name": name} for name, _ in pairs]))
        encoder.finish()


def write_parquet(path, pairs, **settings):
    names, sizes = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    table = pa.table({"name": names, "size": sizes, "extra": sizes})
    pq.write_table(table, path, **settings)


FILES = [
    ("points.csv", CsvFormat(POINT), write_lines),
    ("points.txt.gz", TEXT, write_compressed),
    ("points.parquet", ParquetFormat(POINT), write_parquet),
    ("points.avro", AvroFormat(), write_avro),
]


@pytest.mark.parametrize(("name", "format", "write"), FILES)
def test_a_file_that_was_replaced_is_not_read_from_the_middle(tmp_path, name, format, write):
    path = tmp_path / name
    write(path, FIRST)
    source = FileSource(str(path), format)
    reader = reader_of(source)
    reader.poll(10)
    splits = pickle.loads(pickle.dumps(reader.snapshot()))
    again = reader_of(source, splits=splits)
    again.poll(10)
    assert [again.split_key(split) for split in again.snapshot()] == [
        reader.split_key(split) for split in splits
    ]
    for pairs in (SECOND, FIRST[:20]):
        write(path, pairs)
        for found in (splits, again.snapshot()):
            with pytest.raises(UnreadableInput, match=rf"{name}: .* since the job began to read"):
                reader_of(source, splits=found).poll(10)


def test_a_file_that_grew_is_read_on(tmp_path):
    path = tmp_path / "points.csv"
    write_lines(path, FIRST)
    source = FileSource(str(path), CsvFormat(POINT))
    reader = reader_of(source)
    before = reader.poll(10).batch.records
    write_lines(path, [*FIRST, ("more", 1)])
    assert before + read_all(reader_of(source, splits=reader.snapshot())) == rows(*FIRST)


def test_positions_are_shown_without_the_version_of_their_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("ab\ncd\nef\n")
    reader = reader_of(FileSource(str(path), TEXT))
    reader.poll(1)
    assert list(map(repr, reader.snapshot())) == [repr(LineSplit(str(path), 0, 9, 3))]


class Stream(io.RawIOBase):
    """What a server sends that only sends whole files."""

    def __init__(self, content):
        self._content = io.BytesIO(content)

    def readable(self):
        return True

    def read(self, size=-1):
        return self._content.read(size)

    def seek(self, *place):
        raise ValueError("Cannot seek streaming HTTP file")


class Streams(AbstractFileSystem):
    content = b"ab\ncd\nef\n"

    def info(self, path, **options):
        return {"name": path, "size": len(self.content), "type": "file"}

    def _open(self, path, *arguments, **options):
        return Stream(self.content)


def test_a_file_that_can_only_be_read_from_its_beginning_is_read():
    fsspec.register_implementation("streams", Streams, clobber=True)
    reader = reader_of(FileSource("streams://server/words.txt", TEXT))
    assert reader.poll(1).batch.records == ["ab"]
    assert reader.snapshot() == [LineSplit("streams://server/words.txt", 0, 9, 3)]
    assert read_all(reader) == ["cd", "ef"]


def test_positions_of_earlier_versions_are_continued(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("ab\ncd\nef\n")
    reader = reader_of(FileSource(str(path), TEXT), splits=[LineSplit(str(path), 0, 9, 3)])
    assert read_all(reader) == ["cd", "ef"]


def test_the_builder_has_pyflinks_names(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    builder = FileSource.for_record_stream_format(TEXT, str(tmp_path))
    assert records_of(builder.process_static_file_set().build()) == [["x"]]
    watched = builder.monitor_continuously(timedelta(seconds=1)).build()
    assert watched.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    with pytest.raises(ConfigError, match="watch_every"):
        builder.monitor_continuously(timedelta(0)).build()
    with pytest.raises(ConfigError, match="at least one"):
        FileSource.for_record_stream_format(TEXT).build()


def paths_of(assigned):
    return sorted(split.path.rsplit("/")[-1] for hand in assigned.values() for split in hand)


def test_a_watched_directory_gives_every_file_once_when_it_is_first_seen(tmp_path):
    clock = ManualClock()
    watched = WatchedFiles([str(tmp_path)], TEXT, timedelta(seconds=5), clock)
    (tmp_path / "a.txt").write_text("a")
    assert paths_of(watched.next_splits(2)) == ["a.txt"]
    (tmp_path / "b.txt").write_text("b")
    assert watched.next_splits(2) == {}
    clock.advance(5)
    assert paths_of(watched.next_splits(2)) == ["b.txt"]
    clock.advance(5)
    assert watched.next_splits(2) == {}
    assert not watched.is_exhausted()


def test_files_that_come_one_by_one_go_to_the_readers_in_turn(tmp_path):
    clock = ManualClock()
    watched = WatchedFiles([str(tmp_path)], TEXT, timedelta(seconds=1), clock)
    readers = []
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(name)
        readers += watched.next_splits(2)
        clock.advance(1)
    assert readers == [0, 1, 0, 1]


def test_a_restored_watcher_knows_what_it_has_seen_and_what_came_back(tmp_path):
    clock = ManualClock()

    def watcher():
        return WatchedFiles([str(tmp_path)], TEXT, timedelta(seconds=1), clock)

    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    first = watcher()
    (split, _) = first.next_splits(1)[0]
    first.add_back([split])
    (tmp_path / "c.txt").write_text("c")
    second = watcher()
    second.restore(first.snapshot())
    assert paths_of(second.next_splits(1)) == ["a.txt", "c.txt"]


def test_a_watched_directory_must_exist_at_first_and_may_vanish_for_a_while(tmp_path):
    directory = tmp_path / "inbox"
    clock = ManualClock()
    watched = WatchedFiles([str(directory)], TEXT, timedelta(seconds=1), clock)
    with pytest.raises(UnreadableInput, match="no such file or directory"):
        watched.open()
    assert watched.next_splits(1) == {}
    directory.mkdir()
    (directory / "a.txt").write_text("a")
    clock.advance(1)
    assert paths_of(watched.next_splits(1)) == ["a.txt"]


def test_csv_columns_are_found_by_the_names_of_the_header(tmp_path):
    (tmp_path / "points.csv").write_text('size,extra,name\n1,x,a\n\n,y,"b,""c"\n')
    source = FileSource(str(tmp_path / "points.csv"), CsvFormat(POINT))
    assert records_of(source) == [rows(("a", 1), ('b,"c', None))]
    assert reader_of(source).poll(10).batch.is_columnar


def test_csv_without_a_header_has_the_fields_in_order(tmp_path):
    (tmp_path / "points.csv").write_text("a;1\nb;2\n")
    format = CsvFormat(POINT, header=False, delimiter=";")
    assert records_of(FileSource(str(tmp_path), format)) == [rows(("a", 1), ("b", 2))]


def test_nan_in_a_csv_is_a_number(tmp_path):
    weights = Types.ROW_NAMED(["weight", "note"], [Types.DOUBLE(), Types.STRING()])
    (tmp_path / "weights.csv").write_text("weight,note\nnan,NaN\nNaN,nan\n-inf,\n,x\n")
    (found,) = records_of(FileSource(str(tmp_path), CsvFormat(weights)))
    texts = ["nan NaN", "nan nan", "-inf ", "None x"]
    assert [f"{row.weight} {row.note}" for row in found] == texts


@pytest.mark.slow
def test_a_large_csv_is_read_by_all_readers_and_skips_its_header_once(tmp_path):
    pairs = [(f"name {i}", i) for i in range(150_000)]
    content = "".join(f"{name},{size}\n" for name, size in pairs)
    (tmp_path / "points.csv").write_text("name,size\n" + content)
    shares = records_of(FileSource(str(tmp_path / "points.csv"), CsvFormat(POINT)), 2)
    assert min(map(len, shares)) > 30_000
    assert [(row.name, row.size) for share in shares for row in share] == pairs


@pytest.mark.parametrize("content", ["", "name,size\n", "\ufeffname,size\n"])
def test_a_csv_without_rows_has_no_records(tmp_path, content):
    (tmp_path / "points.csv").write_text(content)
    assert records_of(FileSource(str(tmp_path), CsvFormat(POINT))) == [[]]


def test_a_csv_line_that_does_not_fit_is_named_after_the_good_lines(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("name,size\na,1\nb,2\nc,many\nd,4\n")
    reader = reader_of(FileSource(str(path), CsvFormat(POINT)))
    assert reader.poll(100).batch.records == rows(("a", 1), ("b", 2))
    with pytest.raises(UnreadableInput, match=r"points\.csv, line 4: .*invalid value 'many'"):
        reader.poll(100)


def test_a_csv_line_with_too_many_values_is_named(tmp_path):
    (tmp_path / "points.csv").write_text("name,size\na,1,7\n")
    with pytest.raises(UnreadableInput, match=r"line 2: .*Expected 2 columns, got 3"):
        records_of(FileSource(str(tmp_path), CsvFormat(POINT)))


SIZE_AND_NAME = Types.ROW_NAMED(["size", "name"], [Types.LONG(), Types.STRING()])


@pytest.mark.parametrize("at_once", [1, 2, 100])
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (POINT, 'name,size\nx,0\n"a,1\nb,2\nc",3\nd,4\n'),
        (POINT, 'name,size\nx,0\n"a\n\n\n",1\n'),
        (SIZE_AND_NAME, 'size,name\n0,x\n1,"a\n2,b"\n'),
        (SIZE_AND_NAME, 'size,name\n0,x\n1,"a\n\n'),
    ],
)
def test_a_csv_value_over_several_lines_is_named_however_many_are_read(
    tmp_path, kind, content, at_once
):
    (tmp_path / "points.csv").write_text(content)
    reader = reader_of(FileSource(str(tmp_path), CsvFormat(kind)))
    assert reader.poll(at_once).batch.records[0].name == "x"
    with pytest.raises(UnreadableInput, match=r"points\.csv, line 3: "):
        reader.poll(at_once)


def test_empty_lines_of_a_csv_are_no_rows(tmp_path):
    (tmp_path / "points.csv").write_bytes(b"name,size\r\n\r\na,1\r\n\n  \nb,2\r\n\n")
    assert records_of(FileSource(str(tmp_path), CsvFormat(POINT))) == [rows(("a", 1), ("b", 2))]


def test_a_csv_without_a_column_names_it(tmp_path):
    (tmp_path / "points.csv").write_text("name,count\na,1\n")
    with pytest.raises(MissingField, match=r"points\.csv: no field 'size'; .* name, count"):
        records_of(FileSource(str(tmp_path), CsvFormat(POINT)))


def test_json_lines_without_a_type_are_what_they_are(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"a": [1, null]}\n\n"text"\n3\n')
    assert records_of(FileSource(str(tmp_path), JsonLinesFormat())) == [
        [{"a": [1, None]}, "text", 3]
    ]


def test_typed_json_lines_are_columns_and_missing_fields_none(tmp_path):
    (tmp_path / "points.jsonl").write_text(
        '{"size": 1, "name": "a", "more": {}}\n{"name": "b"}\n\n'
    )
    source = FileSource(str(tmp_path), JsonLinesFormat(POINT))
    assert records_of(source) == [rows(("a", 1), ("b", None))]
    assert reader_of(source).poll(10).batch.is_columnar


def test_json_has_days_and_times_as_text(tmp_path):
    kind = Types.ROW_NAMED(["day", "at"], [Types.SQL_DATE(), Types.SQL_TIMESTAMP()])
    (tmp_path / "x.jsonl").write_text('{"day": "2024-02-29", "at": "2024-02-29T10:20:30"}\n')
    ((record,),) = records_of(FileSource(str(tmp_path), JsonLinesFormat(kind)))
    assert (record.day, record.at.isoformat()) == (date(2024, 2, 29), "2024-02-29T10:20:30")


@pytest.mark.parametrize("type_info", [None, POINT])
def test_a_line_that_is_no_json_is_named_after_the_good_lines(tmp_path, type_info):
    path = tmp_path / "points.jsonl"
    path.write_text('{"name": "a", "size": 1}\n{"name": "b", \n{"name": "c"}\n')
    reader = reader_of(FileSource(str(path), JsonLinesFormat(type_info)))
    assert len(reader.poll(100).batch) == 1
    with pytest.raises(UnreadableInput, match=r"points\.jsonl, line 2: "):
        reader.poll(100)


@pytest.mark.parametrize("format", [CsvFormat, JsonLinesFormat])
def test_types_without_a_form_in_text_are_refused(format):
    with pytest.raises(ConfigError, match="declare STRING for"):
        format(Types.ROW_NAMED(["n"], [Types.BIG_DEC()]))
    with pytest.raises(ConfigError, match="without pickled parts"):
        format(Types.ROW_NAMED(["n"], [Types.PICKLED_BYTE_ARRAY()]))


def test_parquet_tells_its_own_type(tmp_path):
    write_parquet(tmp_path / "a.parquet", [("a", 1), ("b", 2)])
    source = FileSource(str(tmp_path), ParquetFormat())
    assert records_of(source) == [[Row(name="a", size=1, extra=1), Row(name="b", size=2, extra=2)]]
    assert records_of(source, typed=False) == [
        [{"name": "a", "size": 1, "extra": 1}, {"name": "b", "size": 2, "extra": 2}]
    ]


def test_a_declared_type_reads_only_its_columns(tmp_path):
    write_parquet(tmp_path / "a.parquet", [("a", 1), ("b", 2)])
    source = FileSource(str(tmp_path), ParquetFormat(POINT))
    assert records_of(source) == [rows(("a", 1), ("b", 2))]


def test_row_groups_are_spread_over_the_readers(tmp_path):
    pairs = [(f"n{i}", i) for i in range(1000)]
    write_parquet(tmp_path / "a.parquet", pairs, row_group_size=100)
    shares = records_of(FileSource(str(tmp_path), ParquetFormat(POINT)), 2)
    assert [len(share) for share in shares] == [600, 400]
    assert sorted(row.size for share in shares for row in share) == list(range(1000))


def test_a_position_inside_a_row_group_is_sought_exactly(tmp_path):
    pairs = [(f"n{i}", i) for i in range(1000)]
    write_parquet(tmp_path / "a.parquet", pairs, row_group_size=400)
    source = FileSource(str(tmp_path), ParquetFormat(POINT))
    reader = reader_of(source)
    before = [reader.poll(100).batch.records for _ in range(5)]
    assert reader.pending_records() == 300
    rest = read_all(reader_of(source, splits=reader.snapshot()))
    assert [row.size for part in [*before, rest] for row in part] == list(range(1000))


def test_what_is_no_parquet_and_what_lacks_a_column_is_named(tmp_path):
    (tmp_path / "a.parquet").write_text("plain text")
    with pytest.raises(UnreadableInput, match=r"a\.parquet: .*Parquet"):
        records_of(FileSource(str(tmp_path), ParquetFormat(POINT)))
    write_parquet(tmp_path / "a.parquet", [("a", 1)])
    wanted = Types.ROW_NAMED(["weight"], [Types.LONG()])
    with pytest.raises(MissingField, match=r"a\.parquet: no field 'weight'"):
        records_of(FileSource(str(tmp_path), ParquetFormat(wanted)))
