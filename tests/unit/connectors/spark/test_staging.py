import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from tests.unit.connectors.reading import read_all
from tidegate.connectors.source import ReaderContext
from tidegate.connectors.spark.staging import (
    ReadFile,
    StagedFile,
    StagedReader,
    StagedRows,
    Staging,
)
from tidegate.connectors.spark.stream_batches import copy_of_log, write_log
from tidegate.core.clock import ManualClock
from tidegate.core.errors import CorruptCheckpoint, LeaseEnded, UnreadableInput
from tidegate.core.permit import Permit
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types

NUMBER = arrow_format(Types.ROW_NAMED(["n"], [Types.LONG()]))


@pytest.fixture
def staging(tmp_path):
    return Staging(str(tmp_path / "root"))


def stage(staging, number, *files):
    """A batch of files with these numbers, as Spark writes one."""
    directory = Path(staging.batch(number))
    directory.mkdir(parents=True)
    (directory / "_SUCCESS").touch()
    for index, numbers in enumerate(files):
        table = pa.table({"n": pa.array(numbers, pa.int64())})
        pq.write_table(table, directory / f"part-{index}.parquet")
    return staging.files(number)


def splits(rows, retained=1, owner="job"):
    return [StagedRows(StagedFile(each.path, owner, retained), each) for each in rows]


def reader(*given, job_id="job", **more):
    context = ReaderContext(0, 1, ManualClock(), NUMBER, job_id=job_id, **more)
    opened = StagedReader(context)
    opened.add_splits(given)
    opened.no_more_splits()
    return opened


def numbers(records):
    return [row.n for row in records]


def test_files_without_rows_are_nobodys(staging):
    rows = stage(staging, 0, [1, 2], [], [3])
    assert [Path(split.path).name for split in rows] == ["part-0.parquet", "part-2.parquet"]
    assert not Path(staging.batch(0), "part-1.parquet").exists()


def test_a_file_counts_as_read_when_its_end_was_seen(staging):
    rows = stage(staging, 0, [1, 2], [3])
    paths = [split.path for split in rows]
    assert staging.unread(0, paths) == paths
    reading = reader(*splits(rows))
    reading.poll(1)
    assert staging.unread(0, paths) == paths
    assert numbers(read_all(reading)) == [2, 3]
    assert staging.unread(0, paths) == []


def test_a_file_that_was_read_stays_until_enough_checkpoints_do_without_it(staging):
    (rows,) = stage(staging, 0, [1, 2])
    reading = reader(*splits([rows], retained=2))
    early = reading.snapshot()
    read_all(reading)
    reading.notify_complete(1, early)
    assert Path(rows.path).exists()
    reading.notify_complete(2, reading.snapshot())
    assert Path(rows.path).exists()
    restored = reader(*reading.snapshot())
    assert read_all(restored) == []
    restored.notify_complete(3, restored.snapshot())
    assert not Path(rows.path).exists()
    assert restored.snapshot() == []
    assert staging.unread(0, [rows.path]) == []


def test_a_reader_without_a_lease_deletes_nothing(staging):
    (rows,) = stage(staging, 0, [1, 2])
    reading = reader(*splits([rows]), permit=Permit(lambda: False))
    read_all(reading)
    with pytest.raises(LeaseEnded):
        reading.notify_complete(1, reading.snapshot())
    assert Path(rows.path).exists()


def test_a_restored_reader_continues_after_the_last_row(staging):
    rows = stage(staging, 0, [1, 2, 3], [4])
    reading = reader(*splits(rows))
    reading.poll(2)
    assert numbers(read_all(reader(*reading.snapshot()))) == [3, 4]


def test_files_of_another_job_are_read_but_not_touched(staging):
    (rows,) = stage(staging, 0, [1])
    before = sorted(Path(staging.root).rglob("*"))
    reading = reader(*splits([rows], owner="another"))
    read_all(reading)
    reading.notify_complete(1, reading.snapshot())
    assert sorted(Path(staging.root).rglob("*")) == before
    assert reading.snapshot() == []


def copied(reading, directory):
    """What a savepoint holds of a reader: its splits, and copies of its files."""
    found = reading.snapshot()
    for path, file in reading.files_of(found).items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, directory / path)
    return found


def test_a_savepoint_needs_the_files_that_are_not_read_yet(staging):
    rows = stage(staging, 0, [1, 2], [3], [4])
    reading = reader(*splits(rows))
    assert numbers(reading.poll(2).batch.records) == [1, 2]
    reading.poll(1)  # the end of the first file is seen
    files = reading.files_of(reading.snapshot())
    assert [Path(path).name for path in files.values()] == ["part-1.parquet", "part-2.parquet"]


@pytest.mark.parametrize("directory", [True, False], ids=["checkpoints in files", "in memory"])
def test_another_job_continues_with_the_copies_of_a_savepoint(staging, tmp_path, directory):
    rows = stage(staging, 0, [1, 2, 3], [4])
    reading = reader(*splits(rows), directory=str(tmp_path / "root"))
    reading.poll(2)
    saved = copied(reading, tmp_path / "savepoint")
    shutil.rmtree(tmp_path / "root")
    own = str(tmp_path / "own") if directory else None
    origin = str(tmp_path / "savepoint")
    going_on = reader(*saved, job_id="another", directory=own, origin=origin)
    if directory:
        shutil.rmtree(tmp_path / "savepoint")
    going_on.poll(1)
    # Its own checkpoint is what the next attempt begins with.
    again = reader(*going_on.snapshot(), job_id="another", directory=own)
    assert numbers(read_all(again)) == [4]
    again.notify_complete(1, again.snapshot())
    assert not list((tmp_path / "own").rglob("*.parquet"))


def test_the_directory_of_a_job_can_be_moved(staging, tmp_path):
    reading = reader(*splits(stage(staging, 0, [1, 2])), directory=str(tmp_path / "root"))
    reading.poll(1)
    (tmp_path / "root").rename(tmp_path / "moved")
    moved = reader(*reading.snapshot(), directory=str(tmp_path / "moved"))
    assert numbers(read_all(moved)) == [2]


def test_two_checkpoints_under_way_may_both_do_without_a_file(staging):
    (rows,) = stage(staging, 0, [1])
    reading = reader(*splits([rows]))
    read_all(reading)
    snapshots = [reading.snapshot(), reading.snapshot()]
    for number, snapshot in enumerate(snapshots):
        reading.notify_complete(number, snapshot)
    assert not Path(rows.path).exists()


def test_a_file_that_a_checkpoint_counts_on_and_that_is_gone_is_named(staging):
    (rows,) = stage(staging, 0, [1])
    Path(rows.path).unlink()
    with pytest.raises(UnreadableInput, match="that a checkpoint references are missing"):
        reader(*splits([rows])).poll(1)


def test_every_bit_that_has_changed_since_the_checkpoint_is_found(staging):
    (rows,) = stage(staging, 0, list(range(40)))
    reading = reader(*splits([rows]))
    reading.poll(5)
    saved = reading.snapshot()
    file = Path(rows.path)
    whole = file.read_bytes()
    for position in range(0, len(whole), 3):
        file.write_bytes(flipped(whole, position))
        with pytest.raises(CorruptCheckpoint, match=r"part-0\.parquet is corrupt"):
            reader(*saved)
    file.write_bytes(whole)
    assert numbers(read_all(reader(*saved))) == list(range(5, 40))


def flipped(data, position):
    return data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :]


def test_what_lost_attempts_staged_is_removed_and_what_counts_is_not(staging, tmp_path):
    lost = Staging(str(tmp_path / "root"))
    stage(lost, 6, [1])
    for number in range(4):
        stage(staging, number, [number])
    Path(staging.batch(0), "part-0.parquet").unlink()
    assert staging.remove_what_nobody_needs({staging.run: 2, "gone": 7}) == {staging.run: 2}
    left = {path.relative_to(staging.root).as_posix() for path in Path(staging.root).glob("*/*")}
    assert left == {f"{staging.run}/batch-1", f"{staging.run}/batch-2"}
    assert not Path(staging.root, lost.run).exists()


def test_splits_tell_where_they_are():
    (file,) = {StagedFile("/s/stream/5f/batch-1/a.parquet", "job", 1)}
    assert repr(ReadFile(file)) == "the end of /s/stream/5f/batch-1/a.parquet"
    assert file.relative == ("stream", "5f", "batch-1", "a.parquet")


def test_the_log_of_a_query_is_copied_as_far_as_its_last_batch_needs_it(tmp_path):
    query, copied = tmp_path / "query", tmp_path / "copy"
    present = [
        "metadata",
        ".metadata.crc",
        *(f"offsets/{n}" for n in range(13)),
        *(f"commits/{n}" for n in range(12)),
        *(f"sources/0/{n}" for n in (*range(9), 10, 11, 12)),
        "sources/0/9.compact",
        "sources/0/.12.crc",
        "sources/1/0",
    ]
    for name in present:
        path = query / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    write_log(copy_of_log(query, 12), copied)
    found = {path.relative_to(copied).as_posix() for path in copied.rglob("*") if path.is_file()}
    assert found == {
        "metadata",
        "offsets/11",
        "offsets/12",
        "commits/11",
        "sources/0/9.compact",
        "sources/0/10",
        "sources/0/11",
        "sources/0/12",
        "sources/1/0",
    }
    assert (copied / "offsets/12").read_text() == "offsets/12"
