"""Where records come from and where they go."""

import socket
import threading
from datetime import timedelta

import pytest

from tests.api.results import collect, in_any_order
from tidegate.common import Row, Types, WatermarkStrategy
from tidegate.core.errors import UserFunctionError
from tidegate.datastream import SinkFunction, SourceFunction
from tidegate.datastream.connectors import (
    DataGeneratorSource,
    FileSink,
    FileSource,
    NumberSequenceSource,
    Sink,
    SocketSource,
    Source,
    StreamFormat,
)
from tidegate.datastream.connectors.base import (
    InputStatus,
    Poll,
    SinkWriter,
    SourceReader,
    SplitEnumerator,
)
from tidegate.datastream.connectors.file_system import (
    CsvEncoding,
    CsvFormat,
    Encoder,
    JsonLinesEncoding,
    JsonLinesFormat,
    ParquetEncoding,
    ParquetFormat,
)
from tidegate.stream.batch import Batch
from tidegate.types.arrow import arrow_format

CITY = Types.ROW_NAMED(["city", "people"], [Types.STRING(), Types.LONG()])
CITIES = [Row(city="Berlin", people=3), Row(city="Rome", people=2)]


def test_a_collection_is_read_in_order(env):
    assert collect(env.from_collection(iter("abc")).set_parallelism(1)) == ["a", "b", "c"]
    assert collect(env.from_collection([])) == []


def test_a_sequence_has_both_ends(env):
    assert in_any_order(env.from_sequence(3, 7)) == [3, 4, 5, 6, 7]
    source = NumberSequenceSource(1, 3)
    named = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    assert named.get_name() == "numbers"
    assert in_any_order(named) == [1, 2, 3]


def test_a_generator_makes_records_from_their_index(env):
    squares = DataGeneratorSource(lambda i: i * i, type_info=Types.LONG(), count=5)
    assert in_any_order(env.from_source(squares)) == [0, 1, 4, 9, 16]


def test_a_generator_without_an_end_is_read_until_enough_came(env):
    numbers = env.from_source(DataGeneratorSource(lambda i: i, rate=10_000))
    assert len(numbers.execute_and_collect(limit=20)) == 20


def test_text_files_are_read_by_line(env, tmp_path):
    (tmp_path / "one.txt").write_text("to be\nor not\n")
    (tmp_path / "two.txt").write_text("to be")
    assert in_any_order(env.read_text_file(str(tmp_path))) == ["or not", "to be", "to be"]
    assert in_any_order(env.read_text_file(tmp_path / "two.txt")) == ["to be"]


def test_a_source_of_lines_is_built_as_in_pyflink(env, tmp_path):
    (tmp_path / "lines.txt").write_text("a\nb\n")
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
        .process_static_file_set()
        .build()
    )
    stream = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "file_source")
    assert in_any_order(stream) == ["a", "b"]


@pytest.mark.parametrize(
    ("encoding", "format"),
    [
        (CsvEncoding(), CsvFormat(CITY)),
        (JsonLinesEncoding(), JsonLinesFormat(CITY)),
        (ParquetEncoding(arrow_format(CITY).schema), ParquetFormat(CITY)),
    ],
    ids=["csv", "json", "parquet"],
)
def test_typed_files_are_written_and_read_back(env, tmp_path, encoding, format):
    env.from_collection(CITIES, CITY).sink_to(FileSink(str(tmp_path / "out"), encoding))
    env.execute()
    read = collect(env.from_source(FileSource(str(tmp_path / "out"), format)))
    assert sorted(read, key=lambda row: row.city) == CITIES


def test_a_watched_directory_gives_files_that_come_later(env, tmp_path):
    (tmp_path / "1.txt").write_text("first\n")
    source = FileSource(
        str(tmp_path), StreamFormat.text_line_format(), watch_every=timedelta(milliseconds=20)
    )
    with env.from_source(source).execute_and_collect() as lines:
        assert next(lines) == "first"
        (tmp_path / ".2").write_text("second\n")
        (tmp_path / ".2").rename(tmp_path / "2.txt")
        assert next(lines) == "second"


def test_a_socket_is_read_by_line(env):
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"hello\nworld\n")

        threading.Thread(target=serve, daemon=True).start()
        assert in_any_order(env.from_source(SocketSource(host, port))) == ["hello", "world"]


class Countdown(SourceFunction):
    """A source that is a loop."""

    def __init__(self, start):
        self.start = start
        self.running = True

    def run(self, ctx):
        for n in range(self.start, 0, -1):
            if self.running:
                ctx.collect(n)

    def cancel(self):
        self.running = False


def test_a_source_function_is_a_loop_of_one_subtask(env):
    stream = env.add_source(Countdown(3), type_info=Types.LONG())
    assert stream.get_name() == "Custom Source"
    assert collect(stream.map(lambda n: n).set_parallelism(1)) == [3, 2, 1]
    assert in_any_order(env.add_source(NumberSequenceSource(1, 2), "seq")) == [1, 2]


class Letters(Source):
    """A source of the user's own: one split for each word, positions are indexes of letters."""

    def __init__(self, *words):
        self.words = words

    def create_enumerator(self):
        words = self.words

        class Enumerator(SplitEnumerator):
            def next_splits(self, parallelism):
                splits = {}
                for i, word in enumerate(words):
                    splits.setdefault(i % parallelism, []).append((word, 0))
                return splits

        return Enumerator()

    def create_reader(self, context):
        class Reader(SourceReader):
            def __init__(self):
                self.splits = []
                self.complete = False

            def add_splits(self, splits):
                self.splits.extend(splits)

            def no_more_splits(self):
                self.complete = True

            def poll(self, max_records):
                if not self.splits:
                    ended = InputStatus.END_OF_INPUT
                    return Poll(None, ended if self.complete else InputStatus.NOTHING_AVAILABLE)
                word, position = self.splits.pop()
                if position + 1 < len(word):
                    self.splits.append((word, position + 1))
                return Poll(Batch.of_records([word[position]]), InputStatus.MORE_AVAILABLE)

            def snapshot(self):
                return list(self.splits)

        return Reader()


def test_a_source_of_the_users_own_has_splits_and_positions(env):
    assert in_any_order(env.from_source(Letters("abc", "xy", "z"))) == list("abcxyz")


def test_print_shows_the_subtask_and_the_identifier(env, capsys):
    env.from_collection(["a", "b"]).rebalance().print("out")
    env.from_collection([("x", 1)], Types.TUPLE([Types.STRING(), Types.LONG()])).print()
    env.from_collection([{"k": 1}]).print().set_parallelism(1)
    env.execute()
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == ["1> (x,1)", "out:1> a", "out:2> b", "{'k': 1}"]


def test_a_sink_function_is_opened_and_closed(env, tmp_path):
    class ToFile(SinkFunction):
        def __init__(self, path):
            self.path = path

        def open(self, runtime_context):
            self.file = self.path.open("w")

        def invoke(self, value, context):
            assert context.current_processing_time() > 0
            self.file.write(f"{value};")

        def close(self):
            self.file.close()

    sink = env.from_collection([1, 2, 3]).add_sink(ToFile(tmp_path / "out")).set_parallelism(1)
    assert sink.name("To File").get_name() == "To File"
    env.execute()
    assert (tmp_path / "out").read_text() == "1;2;3;"


def test_a_plain_function_may_be_a_sink(env, tmp_path):
    env.from_collection([1, 2, 3]).add_sink(lambda n: (tmp_path / str(n)).touch())
    env.execute()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1", "2", "3"]


def test_lines_are_written_by_an_encoder(env, tmp_path):
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    env.from_collection(["a", "b"]).sink_to(sink).set_parallelism(1)
    env.execute()
    (part,) = (tmp_path / "out").rglob("part-*")
    assert part.read_text() == "a\nb\n"


class Counting(Sink):
    """A sink of the user's own."""

    def __init__(self, path):
        self.path = path

    def create_writer(self, context):
        path = self.path / f"{context.subtask} of {context.parallelism}"

        class Writer(SinkWriter):
            count = 0

            def write(self, batch):
                self.count += len(batch)

            def flush(self, end_of_input=False):
                path.write_text(str(self.count))

        return Writer()


def test_a_sink_of_the_users_own_has_a_writer_in_every_subtask(env, tmp_path):
    env.from_sequence(1, 10).rebalance().sink_to(Counting(tmp_path))
    env.execute()
    written = {file.name: int(file.read_text()) for file in tmp_path.iterdir()}
    assert written.keys() == {"0 of 2", "1 of 2"}
    assert sum(written.values()) == 10


def test_several_sinks_get_all_records_of_their_stream(env, tmp_path):
    numbers = env.from_sequence(1, 4)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        numbers.sink_to(Counting(tmp_path / name)).set_parallelism(1)
    env.execute()
    assert [(tmp_path / name / "0 of 1").read_text() for name in ("one", "two")] == ["4", "4"]


def test_a_sink_that_raises_ends_the_job_with_its_error(env):
    def refuse(value):
        raise OSError("disk full")

    env.from_collection([1]).add_sink(refuse).name("Disk")
    with pytest.raises(UserFunctionError, match="disk full"):
        env.execute()
