"""Replayable sources: a snapshot at any point loses no record and repeats none."""

import gzip
import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from tests.effort import examples
from tests.unit.connectors.reading import reader_of
from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.connectors.files import lines
from tidegate.connectors.files.formats import CsvFormat, JsonLinesFormat, StreamFormat
from tidegate.connectors.files.lines import LineSplit
from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.source import FileSource
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.connectors.source import InputStatus
from tidegate.testing.scripted import Pause, ScriptedSource
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types

POINT = Types.ROW_NAMED(["name", "size"], [Types.STRING(), Types.LONG()])
SETTINGS = examples(25, suppress=[HealthCheck.function_scoped_fixture])

words = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n", exclude_categories=("Cs", "Cc")),
    max_size=8,
)
counts = st.integers(0, 60)


def numbers(draw, folder):
    return NumberSequenceSource(0, draw(counts))


def collection(draw, folder):
    return CollectionSource(range(draw(counts)))


def typed_collection(draw, folder):
    return CollectionSource(range(draw(counts)), Types.LONG(), arrow_format(Types.LONG()))


def generated(draw, folder):
    return DataGeneratorSource(str, count=draw(counts))


def generated_columns(draw, folder):
    def generate(start, count):
        return pa.RecordBatch.from_arrays([np.arange(start, start + count)], names=["value"])

    return DataGeneratorSource(generate, type_info=Types.LONG(), count=draw(counts), columnar=True)


def scripted(draw, folder):
    item = st.integers() | st.just(Pause(0))
    return ScriptedSource(*draw(st.lists(st.lists(item, max_size=20), max_size=4)))


def write(folder, name, content):
    """Write to a new folder for every example, without the files of the previous one."""
    for old in folder.iterdir():
        old.unlink()
    (folder / name).write_bytes(content)


def text(draw, folder):
    end = draw(st.sampled_from(["\n", "\r\n"]))
    content = end.join(draw(st.lists(words, max_size=30)))
    write(folder, "words.txt", (content + draw(st.sampled_from(["", end]))).encode())
    return FileSource(str(folder), StreamFormat.text_line_format())


def compressed_text(draw, folder):
    write(folder, "words.txt.gz", gzip.compress("\n".join(draw(st.lists(words))).encode()))
    return FileSource(str(folder), StreamFormat.text_line_format())


def csv(draw, folder):
    header = draw(st.booleans())
    rows = [f"{'x' * (i % 5)},{i}\n" for i in range(draw(counts))]
    write(folder, "points.csv", ("name,size\n" * header + "".join(rows)).encode())
    return FileSource(str(folder), CsvFormat(POINT, header=header))


def json_lines(draw, folder):
    rows = [f'{{"name": "{i}", "size": {i}}}\n' for i in range(draw(counts))]
    write(folder, "points.jsonl", "".join(rows).encode())
    return FileSource(str(folder), JsonLinesFormat(POINT if draw(st.booleans()) else None))


def parquet(draw, folder):
    count = draw(counts)
    table = pa.table({"name": list(map(str, range(count))), "size": list(range(count))})
    write(folder, "points.parquet", b"")
    pq.write_table(table, folder / "points.parquet", row_group_size=draw(st.integers(1, 20)))
    return FileSource(str(folder), ParquetFormat(POINT))


SOURCES = [
    numbers,
    collection,
    typed_collection,
    generated,
    generated_columns,
    scripted,
    text,
    compressed_text,
    csv,
    json_lines,
    parquet,
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Files of a few lines have several blocks and splits."""
    monkeypatch.setattr(lines, "_BLOCK", 48)
    monkeypatch.setattr(lines, "_SMALLEST_SPLIT", 30)


def read(reader, sizes, polls=None):
    """The records of this many polls of the given sizes in turn, or up to the end."""
    records = []
    done = 0
    while polls is None or done < polls:
        poll = reader.poll(sizes[done % len(sizes)])
        done += 1
        if poll.batch is not None:
            assert 0 < len(poll.batch) <= sizes[(done - 1) % len(sizes)]
            records += poll.batch.records
        if poll.status is InputStatus.END_OF_INPUT:
            break
    return records


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
@SETTINGS
@given(data=st.data())
def test_a_restored_reader_continues_after_the_last_record(make, data, tmp_path):
    source = make(data.draw, tmp_path)
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4), label="poll sizes")
    parallelism = data.draw(st.integers(1, 3), label="parallelism")
    assigned = source.create_enumerator().next_splits(parallelism)
    for splits in assigned.values():
        whole = read(reader_of(source, splits=splits), [1000])
        reader = reader_of(source, splits=splits)
        before = read(reader, sizes, polls=data.draw(st.integers(0, 30), label="polls before"))
        snapshot = pickle.loads(pickle.dumps(reader.snapshot()))
        reader.close()
        after = read(reader_of(source, splits=snapshot), sizes)
        assert before + after == whole


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
@SETTINGS
@given(data=st.data())
def test_readers_of_any_number_read_every_record_once(make, data, tmp_path):
    source = make(data.draw, tmp_path)
    alone = read(reader_of(source), [1000])
    parallelism = data.draw(st.integers(1, 4), label="parallelism")
    shares = [
        read(reader_of(source, subtask=subtask, parallelism=parallelism), [7])
        for subtask in range(parallelism)
    ]
    together = [record for share in shares for record in share]
    assert sorted(together, key=repr) == sorted(alone, key=repr)


@SETTINGS
@given(data=st.data(), content=st.lists(words, max_size=20))
def test_lines_belong_to_the_range_of_their_first_byte(data, content, tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("".join(line + "\n" for line in content).encode())
    size = path.stat().st_size
    cuts = sorted(data.draw(st.sets(st.integers(1, size), max_size=5))) if size else []
    bounds = [0, *cuts, size]
    splits = [LineSplit(str(path), start, stop) for start, stop in itertools.pairwise(bounds)]
    source = FileSource(str(path), StreamFormat.text_line_format())
    assert [read(reader_of(source, splits=[split]), [3]) for split in splits] == [
        in_range(content, split) for split in splits
    ]


def in_range(content, split):
    offset = 0
    found = []
    for line in content:
        if split.start <= offset < split.stop:
            found.append(line)
        offset += len(line.encode()) + 1
    return found
