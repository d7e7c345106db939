"""Jobs that go on without the records that their functions fail on."""

import json
import logging
from collections import Counter
from pathlib import Path

import pytest

from tidegate.common import RestartStrategies, Types
from tidegate.core.errors import UserFunctionError
from tidegate.core.modes import RuntimeExecutionMode
from tidegate.datastream import (
    CheckpointListener,
    KeyedProcessFunction,
    MapFunction,
    PoisonRecords,
)
from tidegate.datastream.connectors.file_system import (
    Encoder,
    FileSink,
    FileSource,
    JsonLinesEncoding,
    JsonLinesFormat,
)
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.testing.environments import mini_environment
from tidegate.testing.scripted import CollectingSink

POISON = 333
LAST = 600


class Refuses(MapFunction):
    def __init__(self, *numbers):
        self.numbers = numbers

    def map(self, value):
        if value in self.numbers:
            raise ValueError(f"{value} is poison")
        return value


class FailsBehindCheckpoints(MapFunction, CheckpointListener):
    """Fails in each of the first attempts, behind a completed checkpoint; no record is at fault."""

    def __init__(self, attempts):
        self.attempts = attempts

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()
        self.is_through = False

    def notify_checkpoint_complete(self, checkpoint_id):
        self.is_through = True

    def map(self, value):
        if self.is_through and self.attempt < self.attempts:
            raise OSError(f"the disk is full at attempt {self.attempt}")
        return value


class Totals(KeyedProcessFunction):
    """How many records every key has had, in its state; returns the records."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + 1)
        yield value


def refuse_ten(number):
    if number == 10:
        raise ValueError("ten")


def take(value):
    pass


def environment(parallelism=2, backend="hashmap", restarts=8, **settings):
    env = mini_environment(
        {"tidegate.step.max-records": 20, "state.backend.type": backend, **settings},
        parallelism=parallelism,
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))
    return env.enable_checkpointing("10 ms")


def letters_in(directory):
    files = [path for path in Path(directory).rglob("*.jsonl") if path.is_file()]
    assert not [path.name for path in files if path.name.startswith(".")]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def numbers_in(directory):
    files = [path for path in Path(directory).rglob("part-*") if path.is_file()]
    return sorted(int(line) for path in files for line in path.read_text().split())


def dead_letters(tmp_path):
    return FileSink(str(tmp_path / "dead"), JsonLinesEncoding())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("chained", [True, False], ids=["chained", "shuffled"])
def test_a_poison_record_is_in_the_dead_letters_once_and_nowhere_else(tmp_path, backend, chained):
    env = environment(backend=backend)
    env.on_poison_record(PoisonRecords.skip(after=2, dead_letters=dead_letters(tmp_path)))
    numbers = env.from_sequence(1, LAST)
    numbers = numbers if chained else numbers.rebalance()
    found = numbers.map(Refuses(POISON)).name("Check").uid("check")
    counts = found.key_by(lambda number: number % 5).process(Totals())
    counts.sink_to(FileSink(str(tmp_path / "out"), Encoder()))
    env.execute()
    assert numbers_in(tmp_path / "out") == [n for n in range(1, LAST + 1) if n != POISON]
    [letter] = letters_in(tmp_path / "dead")
    assert (letter["operator"], letter["uid"], letter["record"]) == ("Check", "check", str(POISON))
    assert letter["error"] == f"ValueError: {POISON} is poison"
    assert (letter["position"] is not None) is chained
    assert "in map" in letter["traceback"]


def test_the_job_fails_as_often_as_was_asked_for(caplog):
    caplog.set_level(logging.INFO, "tidegate.job")
    env = environment(1)
    env.on_poison_record(PoisonRecords.skip(after=3))
    sink = CollectingSink()
    env.from_sequence(1, 50).map(Refuses(33)).sink_to(sink)
    env.execute()
    restarts = [m for m in caplog.messages if "failed, restart " in m]
    assert len(restarts) == 3
    said = "the job has failed 3 time(s) on the record 33 in operator 'Map': it is now skipped"
    assert caplog.messages.count(said) == 1


def test_at_once_means_that_the_job_never_fails(tmp_path, caplog):
    caplog.set_level(logging.INFO, "tidegate.job")
    env = environment(restarts=0)
    env.on_poison_record(PoisonRecords.skip(after=0, dead_letters=dead_letters(tmp_path)))
    bad = range(10, 500, 7)
    env.from_sequence(1, LAST).map(Refuses(*bad)).rebalance().sink_to(
        FileSink(str(tmp_path / "out"), Encoder())
    )
    env.execute()
    assert numbers_in(tmp_path / "out") == [n for n in range(1, LAST + 1) if n not in bad]
    assert sorted(int(each["record"]) for each in letters_in(tmp_path / "dead")) == list(bad)
    assert not [m for m in caplog.messages if "failed" in m]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_later_recoveries_leave_it_out_again_and_deliver_its_letter_once(tmp_path, parallelism):
    """The job goes back to checkpoints before and behind the record, and never fails on it anew."""
    env = environment(parallelism, restarts=20)
    env.on_poison_record(PoisonRecords.skip(after=1, dead_letters=dead_letters(tmp_path)))
    bad = (5, 250, 251, 400)
    numbers = env.from_sequence(1, LAST).map(Refuses(*bad))
    behind = numbers.rebalance().map(FailsBehindCheckpoints(12))
    behind.rebalance().sink_to(FileSink(str(tmp_path / "out"), Encoder()))
    env.execute()
    assert numbers_in(tmp_path / "out") == [n for n in range(1, LAST + 1) if n not in bad]
    assert sorted(int(each["record"]) for each in letters_in(tmp_path / "dead")) == list(bad)


def test_several_poison_records_of_several_operators(tmp_path):
    env = environment(restarts=30)
    env.on_poison_record(PoisonRecords.skip(after=2, dead_letters=dead_letters(tmp_path)))
    numbers = env.from_sequence(1, LAST).map(Refuses(7, 300)).name("First")
    keyed = numbers.key_by(lambda number: number % 3 if number != 8 else 1 // 0)
    keyed.process(Totals()).map(Refuses(9)).name("Last").add_sink(refuse_ten)
    env.execute()
    found = Counter(each["operator"] for each in letters_in(tmp_path / "dead"))
    assert found == {"First": 3, "Last": 1, "Unnamed": 1}
    first = [each for each in letters_in(tmp_path / "dead") if each["operator"] == "First"]
    assert sorted(int(each["record"]) for each in first) == [7, 8, 300]
    assert {each["error"] for each in first if each["record"] == "8"} == {
        "ZeroDivisionError: integer division or modulo by zero"
    }


def test_records_that_do_not_fit_the_declared_type_are_skipped(tmp_path):
    env = environment()
    env.on_poison_record(PoisonRecords.skip(after=1, dead_letters=dead_letters(tmp_path)))
    numbers = env.from_sequence(1, 100)
    pairs = numbers.map(
        lambda n: (n % 2, n if n != 50 else "fifty"), Types.TUPLE([Types.LONG(), Types.LONG()])
    )
    pairs.key_by(lambda pair: pair[0]).sum(1).add_sink(take)
    env.execute()
    [letter] = letters_in(tmp_path / "dead")
    assert letter["record"] == "(0, 'fifty')"
    assert "does not fit the declared type" in letter["traceback"]


def test_by_default_the_job_fails_until_its_restarts_are_used_up():
    env = environment(restarts=2)
    env.on_poison_record(PoisonRecords.skip(after=1)).on_poison_record(PoisonRecords.fail())
    env.from_sequence(1, 50).map(Refuses(33)).add_sink(take)
    with pytest.raises(UserFunctionError, match="33 is poison"):
        env.execute()


def test_a_failing_sink_for_dead_letters_fails_the_job():
    def refuse(letter):
        raise OSError("the dead letter office is closed")

    env = environment(1, restarts=2)
    env.on_poison_record(PoisonRecords.skip(after=0, dead_letters=refuse))
    env.from_sequence(1, 50).map(Refuses(33)).add_sink(take)
    with pytest.raises(UserFunctionError, match="the dead letter office is closed"):
        env.execute()


def test_too_few_restarts_are_warned_of(caplog):
    env = environment(restarts=2)
    env.on_poison_record(PoisonRecords.skip(after=3))
    env.from_sequence(1, 5).add_sink(take)
    env.execute()
    assert (
        "a record is skipped when the job has failed on it 3 time(s), but the restart strategy "
        "ends the job after 2 restart(s): allow at least 3" in caplog.messages
    )


def test_the_choice_can_be_made_by_configuration(capsys):
    env = environment(1, **{"tidegate.poison-records.skip-after": 1})
    env.from_sequence(1, 50).map(Refuses(33)).add_sink(take)
    env.execute()
    [line] = [line for line in capsys.readouterr().out.splitlines() if "skipped" in line]
    assert line.startswith("WARNING Map (1/1): skipped the record 33 (before ")
    assert line.endswith("): ValueError: 33 is poison")


def test_lines_of_files_that_cannot_be_read_are_skipped(tmp_path):
    lines = [json.dumps({"n": n}) for n in range(40)]
    lines[20] = "{oops"
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    env = environment(1)
    env.on_poison_record(PoisonRecords.skip(after=1, dead_letters=dead_letters(tmp_path)))
    rows = Types.ROW_NAMED(["n"], [Types.LONG()])
    source = FileSource(str(tmp_path / "in.jsonl"), JsonLinesFormat(rows))
    env.from_source(source).map(lambda row: row.n).sink_to(
        FileSink(str(tmp_path / "out"), Encoder())
    )
    env.execute()
    assert numbers_in(tmp_path / "out") == [n for n in range(40) if n != 20]
    [letter] = letters_in(tmp_path / "dead")
    offset = len("\n".join(lines[:20])) + 1
    assert letter["position"] == f"{tmp_path / 'in.jsonl'}, byte {offset}"
    assert letter["raw_format"] == "bytes"


def test_streams_that_do_not_touch_fail_on_their_own(tmp_path):
    env = environment(1)
    env.on_poison_record(PoisonRecords.skip(after=1, dead_letters=dead_letters(tmp_path)))
    for bad in (7, 8):
        env.from_sequence(1, 40).map(Refuses(bad)).add_sink(take)
    graph, _ = env._program.translate(env._configuration.settings(), 1, env._dead_letters)
    assert len(graph.pipelines) == 2
    env.execute()
    assert sorted(each["record"] for each in letters_in(tmp_path / "dead")) == ["7", "8"]


def test_a_job_in_batch_mode_leaves_records_out_too(tmp_path):
    env = mini_environment(parallelism=1).set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.on_poison_record(PoisonRecords.skip(after=0, dead_letters=dead_letters(tmp_path)))
    pairs = [("a", 1), ("a", None), ("b", 2), ("a", 3), ("b", "x"), ("b", 4)]
    sums = (
        env.from_collection(pairs)
        .key_by(lambda pair: pair[0])
        .reduce(lambda one, other: (one[0], one[1] + other[1]))
    )
    with sums.execute_and_collect() as found:
        assert sorted(found) == [("a", 4), ("b", 6)]
    assert len(letters_in(tmp_path / "dead")) == 2


def test_watching_changes_no_identity(tmp_path):
    """State stored without the choice is found with it, and the other way round."""

    def operators(watching):
        env = environment(2)
        if watching:
            env.on_poison_record(PoisonRecords.skip(dead_letters=dead_letters(tmp_path)))
        env.from_sequence(1, 9).map(str).key_by(lambda text: text).process(Totals()).print()
        settings = env._configuration.settings()
        graph, _ = env._program.translate(settings, 2, env._dead_letters)
        return [chained.operator_id for vertex in graph.vertices for chained in vertex.chain]

    assert operators(watching=True)[:-1] == operators(watching=False)
