"""`execution.state-recovery.path`: a job that resumes from what an earlier one has left."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.effort import some
from tests.jobs import (
    RESTARTS,
    SUM,
    Sums,
    Watch,
    checkpoint_after,
    checkpoints_in,
    fail_once,
    hold_checkpoints,
    key_of,
    on_disk,
    raise_,
    summed,
    totals,
)
from tests.programs import PATIENCE, apply, keyed, mapped, read, wait_until
from tests.taps import Tap
from tests.unit.driver.conftest import RECORDS
from tests.unit.driver.test_ended_subtasks import remembered
from tidegate.checkpoint.metadata import decode, encode
from tidegate.core.errors import (
    ConfigError,
    CorruptCheckpoint,
    DirectoryTaken,
    JobCanceled,
    NoCheckpoint,
    StateNotClaimed,
    StateTypeChanged,
    UnsupportedFormat,
    UserFunctionError,
)
from tidegate.operators.keyed import KeyedMapOperator
from tidegate.protocol.job_status import JobStatus
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.stream.elements import BarrierKind
from tidegate.types.typeinfo import Types


@pytest.fixture(params=some("hashmap", "rocksdb"))
def settings(request, tmp_path):
    return on_disk(
        tmp_path / "checkpoints",
        **{
            "state.backend.type": request.param,
            "execution.checkpointing.num-retained": 2,
            "restart-strategy": "none",
        },
    )


@pytest.fixture
def ended(start, watch, settings, tmp_path):
    """A job that was cancelled; it left the checkpoints of 20 and of 30 records."""
    tap = Tap(RECORDS)
    job = start(program(watch, tap), settings=settings)
    job.kept = [checkpoint_after(job, watch, tap, n) for n in (20, 30)]
    job.master.cancel()
    job.fails(JobCanceled)
    watch.actions.clear()
    watch.events.clear()
    job.directory = tmp_path / "checkpoints" / job.master.job_id
    assert checkpoints_in(job.directory) == job.kept
    return job


def program(watch, tap, function=Sums, **more):
    return summed(watch, read(tap, uid="source", parallelism=1), function=function, **more)


def from_(path, settings):
    return {**settings, "execution.state-recovery.path": str(path)}


def content(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def go_on(start, watch, settings):
    """Starts the program again, from a path."""

    def create(path, *, tap=None, more=None, **given):
        tap = tap or Tap(RECORDS, is_open=True)
        return start(
            program(watch, tap, **given), settings=from_(path, {**settings, **(more or {})})
        )

    return create


def test_a_job_resumes_from_the_path_of_a_checkpoint(ended, go_on, watch):
    before = content(ended.directory)
    job = go_on(ended.directory / f"chk-{ended.kept[0]}")
    job.result()
    assert dict(job.records()) == totals(RECORDS)
    assert sorted(watch.values("sums", "map")) == sorted(RECORDS[20:])
    assert job.master.job_id != ended.master.job_id
    assert content(ended.directory) == before, "what is somebody else's stays as it is"


def test_the_directory_of_a_job_means_its_latest_checkpoint(ended, go_on, watch):
    job = go_on(ended.directory)
    job.result()
    assert sorted(watch.values("sums", "map")) == sorted(RECORDS[30:])
    assert dict(job.records()) == totals(RECORDS)


def test_a_job_that_started_from_a_path_and_fails_before_its_first_checkpoint_goes_back_to_it(
    ended, go_on, watch
):
    tap = Tap(RECORDS)
    job = go_on(ended.directory, tap=tap, more=RESTARTS)
    hold_checkpoints(job, watch, "sums")
    tap.let(40)
    wait_until(lambda: watch.count("sums", "map") == 10)
    watch.actions.clear()
    job.cluster.kill(1)
    tap.open()
    job.result()
    assert dict(job.records()) == totals(RECORDS)


def test_without_checkpoints_of_its_own_a_job_can_start_from_one(ended, start, watch, settings):
    del settings["execution.checkpointing.interval"]
    tap = Tap(RECORDS, is_open=True)
    job = start(program(watch, tap), settings=from_(ended.directory, settings))
    job.result()
    assert dict(job.records()) == totals(RECORDS)


# --- latest -------------------------------------------------------------------------------------


def test_latest_is_the_same_job_going_on(ended, go_on, watch):
    (ended.directory / "chk-77").mkdir()
    leftovers = [ended.directory / "chk-77/half-written", ended.directory / "shared/nobody's"]
    for leftover in leftovers:
        leftover.parent.mkdir(exist_ok=True)
        leftover.write_bytes(b"left")
    tap = Tap(RECORDS)
    job = go_on("latest", tap=tap)
    assert job.master.job_id == ended.master.job_id
    assert not any(leftover.exists() for leftover in leftovers)
    number = checkpoint_after(job, watch, tap, 40)
    assert number > 77, "no id is used twice"
    wait_until(lambda: ended.kept[0] not in checkpoints_in(ended.directory))
    assert checkpoints_in(ended.directory)[-1] == number
    watch.actions.clear()
    tap.open()
    job.result()
    assert sorted(watch.values("sums", "map")) == sorted(RECORDS[30:])
    assert dict(job.records()) == totals(RECORDS)


def test_latest_starts_fresh_where_there_is_nothing(start, watch, settings):
    tap = Tap(RECORDS, is_open=True)
    job = start(program(watch, tap), settings=from_("latest", settings))
    job.result()
    assert dict(job.records()) == totals(RECORDS)


def test_latest_is_of_the_job_of_this_name(ended, start, watch, settings):
    tap = Tap(RECORDS, is_open=True)
    job = start(program(watch, tap), settings=from_("latest", settings), name="another job")
    job.result()
    assert sorted(watch.values("sums", "map")) == sorted(RECORDS)
    assert checkpoints_in(ended.directory) == ended.kept


def test_a_resumed_job_that_fails_before_its_first_checkpoint_leaves_those_it_found(
    ended, start, watch, settings
):
    """For instance because Spark has no room for it: the next start resumes from them."""
    rarely = {
        **settings,
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.externalized-checkpoint-retention": "NO_EXTERNALIZED_CHECKPOINTS",
    }
    watch.on("sums", "map", lambda _: raise_(ValueError("bad")))
    tap = Tap(RECORDS, is_open=True)
    start(program(watch, tap), settings=from_("latest", rarely)).fails(UserFunctionError)
    assert checkpoints_in(ended.directory) == ended.kept


def test_latest_needs_a_directory(start, watch):
    settings = {"execution.state-recovery.path": "latest"}
    with pytest.raises(ConfigError, match=r"set execution\.checkpointing\.dir"):
        start(program(watch, Tap(RECORDS)), settings=settings)


def test_a_driver_whose_directory_was_taken_over_stops_and_deletes_nothing(
    start, watch, settings, tmp_path
):
    first, second = Tap(RECORDS), Tap(RECORDS)
    older = start(
        program(watch, first),
        settings={
            **settings,
            **RESTARTS,
            "execution.checkpointing.externalized-checkpoint-retention": (
                "NO_EXTERNALIZED_CHECKPOINTS"
            ),
        },
    )
    first.let(30)
    wait_until(lambda: watch.count("sums", "map") == 30)
    older.wait_for_checkpoint()
    newer = start(program(watch, second), settings=from_("latest", settings))
    assert newer.master.job_id == older.master.job_id
    directory = str(tmp_path / "checkpoints" / newer.master.job_id)
    assert older.fails(DirectoryTaken).args[0] == directory
    assert checkpoints_in(Path(directory)), "the newer one can still go back"
    second.open()
    newer.result()
    assert dict(newer.records()) == totals(RECORDS)


def test_a_driver_whose_directory_was_taken_over_opens_nothing_again(start, watch, settings):
    rarely = {**settings, **RESTARTS, "execution.checkpointing.interval": "1 h"}
    first, second = Tap(RECORDS), Tap(RECORDS)
    older = start(program(watch, first), settings=rarely)
    first.let(30)
    wait_until(lambda: watch.count("sums", "map") == 30)
    newer = start(program(Watch(), second), settings=from_("latest", rarely))
    assert newer.master.job_id == older.master.job_id
    opened = watch.count("sums", "initialize")
    fail_once(watch, "sums")
    first.open()
    older.fails(DirectoryTaken)
    assert watch.count("sums", "initialize") == opened
    second.open()
    newer.result()
    assert dict(newer.records()) == totals(RECORDS)


def test_a_driver_whose_checkpoints_are_gone_says_that_another_one_has_the_directory(
    start, watch, settings
):
    one = {**settings, **RESTARTS, "execution.checkpointing.num-retained": 1}
    rarely = one | {"execution.checkpointing.interval": "1 h"}
    first, second = Tap(RECORDS), Tap(RECORDS)
    older = start(remembered(watch, first), settings=rarely)
    wait_until(lambda: older.status is JobStatus.RUNNING)
    older.order(BarrierKind.CHECKPOINT).result(PATIENCE)
    newer = start(remembered(Watch(), second), settings=from_("latest", one))
    newer.wait_for_checkpoints(2)
    fail_once(watch, "remembers")
    first.open()
    older.fails(DirectoryTaken)


# --- what cannot be used ------------------------------------------------------------------------


def test_a_path_where_nothing_is_is_named(go_on, tmp_path):
    with pytest.raises(NoCheckpoint, match="no such directory") as failure:
        go_on(tmp_path / "nowhere")
    assert failure.value.args[0] == str(tmp_path / "nowhere")


def test_a_half_written_checkpoint_is_none(ended, go_on):
    path = ended.directory / f"chk-{ended.kept[1]}"
    (path / "_metadata").unlink()
    with pytest.raises(NoCheckpoint, match="it was never completed"):
        go_on(path)


def test_a_checkpoint_of_a_newer_format_is_refused(ended, go_on):
    path = ended.directory / f"chk-{ended.kept[1]}"
    metadata = decode((path / "_metadata").read_bytes(), "")
    (path / "_metadata").write_bytes(encode(replace(metadata, format_version=99)))
    with pytest.raises(UnsupportedFormat, match="format 99"):
        go_on(path)


@pytest.mark.parametrize("path", ["latest", "directory"])
def test_operator_state_is_restored_although_the_metadata_does_not_say_what_it_is(
    start, watch, settings, tmp_path, path
):
    tap = Tap(range(10), range(10))
    job = start(remembered(watch, tap), settings=settings)
    job.wait_for_checkpoint()
    job.cancel()
    watch.events.clear()
    directory = tmp_path / "checkpoints" / job.master.job_id
    for file in directory.glob("chk-*/_metadata"):
        metadata = decode(file.read_bytes(), "")
        operators = {
            id: replace(record, subtasks=without_facts(record.subtasks))
            for id, record in metadata.operators.items()
        }
        file.write_bytes(encode(replace(metadata, operators=operators)))
    tap.open()
    path = "latest" if path == "latest" else directory
    start(remembered(watch, tap), settings=from_(path, settings), parallelism=1).result()
    assert watch.values("remembers", "list") == watch.values("remembers", "union")
    assert watch.values("remembers", "list") == [["of 0", "of 1"]]


def without_facts(subtasks):
    return {i: replace(handle, operator_states=()) for i, handle in subtasks.items()}


@pytest.mark.parametrize("path", ["latest", "directory"])
def test_unreadable_metadata_of_the_latest_is_named_and_the_one_before_it_used(
    ended, go_on, watch, caplog, path
):
    damaged = ended.directory / f"chk-{ended.kept[1]}/_metadata"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    job = go_on("latest" if path == "latest" else ended.directory)
    job.result()
    assert sorted(watch.values("sums", "map")) == sorted(RECORDS[20:])
    assert dict(job.records()) == totals(RECORDS)
    assert f"{damaged} is corrupt" in caplog.text


@pytest.mark.parametrize("path", ["latest", "directory"])
def test_a_job_does_not_start_fresh_when_no_checkpoint_can_be_read(ended, go_on, path):
    for number in ended.kept:
        (ended.directory / f"chk-{number}/_metadata").write_bytes(b"TIDEGATE?")
    before = content(ended.directory)
    with pytest.raises((CorruptCheckpoint, NoCheckpoint), match=str(ended.directory)):
        go_on("latest" if path == "latest" else ended.directory)
    assert content(ended.directory) == before


def test_a_checkpoint_of_another_job_is_refused(ended, start, watch, settings):
    another = mapped(str, read([1], uid="numbers"), uid="text")
    path = ended.directory / f"chk-{ended.kept[1]}"
    with pytest.raises(StateNotClaimed) as failure:
        start(another, settings=from_(path, settings))
    assert str(failure.value).startswith(f"{path} belongs to job 'job'")
    assert "'sums' (uid sums)" in str(failure.value)


def test_state_that_nobody_takes_is_refused_unless_it_may_be_left_behind(
    ended, start, watch, settings
):
    def without_sums():
        tap = Tap(RECORDS, is_open=True)
        return mapped(key_of, read(tap, uid="source", parallelism=1), uid="other"), tap

    with pytest.raises(StateNotClaimed, match="ignore-unclaimed-state"):
        start(without_sums()[0], settings=from_(ended.directory, settings))
    sink, tap = without_sums()
    ignoring = {**settings, "execution.state-recovery.ignore-unclaimed-state": True}
    start(sink, settings=from_(ended.directory, ignoring)).result()
    assert tap.reads == 30, "the source has gone on from its position"


class Texts(Sums):
    descriptor = ValueStateDescriptor(SUM.name, Types.STRING())


def test_a_state_of_another_type_is_refused(ended, go_on):
    failure = go_on(ended.directory, function=Texts).fails(StateTypeChanged)
    assert "state 'sum' holds value state of Long" in str(failure)
    assert "another name" in str(failure)


def test_an_operator_that_is_new_begins_without_state(ended, start, watch, settings):
    tap = Tap(RECORDS, is_open=True)
    source = read(tap, uid="source", parallelism=1)
    more = KeyedMapOperator(Sums(watch, "more"), [select_key(key_of)])
    job = start(
        summed(watch, source),
        apply(more, keyed(key_of, source), uid="more", is_keyed=True),
        settings=from_(ended.directory, settings),
    )
    job.result()
    assert sorted(watch.values("more", "map")) == sorted(RECORDS[30:])


def test_a_driver_that_resumes_its_job_retries_when_user_code_does_not_open(ended, go_on, watch):
    fail_once(watch, "sums", "open", RuntimeError("the database is away"))
    job = go_on("latest", more=RESTARTS)
    job.result()
    assert dict(job.records()) == totals(RECORDS)
