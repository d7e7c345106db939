"""The examples fail, are killed, and go on: from the right place, with the right counts."""

import importlib
import json
import logging
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import psutil
import pytest

from tests.programs import wait_until
from tests.spark.scripts import end, environment, family_of
from tidegate.common import RestartStrategies, Types
from tidegate.core.errors import UserFunctionError
from tidegate.datastream import MapFunction
from tidegate.testing.environments import mini_environment
from tidegate.testing.scripted import CollectingSink

EXAMPLES = Path(__file__).parents[2] / "examples"

TABLE = """
    checkpoint at 25
    reads 25 a, 26 b, 27 a
    (a,1) (b,1) (a,2)
    checkpoint at 28
    reads 28 a, 29 c, 30 ERROR
    (a,3) (c,1)
    restarts
    goes back to 28
    reads 28 a, 29 c, 30 ERROR
    (a,3) (c,1)
    restarts
    goes back to 28
    reads 28 a, 29 c, 30 ERROR
    (a,3) (c,1)
    restarts
    goes back to 28
    reads 28 a, 29 c, 30 ERROR
    (a,3) (c,1)
    gives up: fixed-delay allows no more than 3 restart(s)
"""


@pytest.fixture
def example(monkeypatch):
    """Import an example, with what lies beside it."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def restarting_environment(restarts=3):
    env = mini_environment({"execution.checkpointing.interval": "50 ms"}, parallelism=1)
    return env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))


# --- the word count ------------------------------------------------------------------------------


def watched(topic):
    """Log what the reader of a topic reads, and which of its positions are stored."""

    class WatchedReader(type(topic.create_reader(None))):
        def poll(self, max_records):
            first, start = self.topic.starts[0], self.offset
            poll = super().poll(max_records)
            words = [json.loads(line)["word"] for line in self.topic.messages]
            read = [f"{i} {words[i - first]}" for i in range(start, self.offset)]
            if read:
                logging.getLogger("table").info("reads %s", ", ".join(read))
            return poll

        def notify_complete(self, checkpoint_id, splits):
            logging.getLogger("table").info("checkpoint at %d", splits[0].offset)
            super().notify_complete(checkpoint_id, splits)

    class WatchedTopic(type(topic)):
        def create_reader(self, context):
            return WatchedReader(self)

    topic.__class__ = WatchedTopic
    return topic


def lines_of_the_table(messages):
    """What happened, in order, without checkpoints at a position that is stored already."""
    lines, stored = [], None
    for message in messages:
        if found := re.search(r"seeks to Partition\(topic='word', offset=(\d+)\)", message):
            lines.append(f"goes back to {found[1]}")
        elif message.startswith("pipeline 0 failed, restart "):
            lines.append("restarts")
        elif found := re.match("pipeline 0 failed, and the job with it: (.*)", message):
            lines.append(f"gives up: {found[1]}")
        elif message.startswith("checkpoint at"):
            if message != stored:
                lines.append(message)
            stored = message
        elif message.startswith("("):
            if lines[-1].startswith("("):
                lines[-1] += f" {message}"
            else:
                lines.append(message)
        elif message.startswith("reads"):
            lines.append(message)
    return lines


def test_the_word_count_goes_back_to_its_checkpoint_until_the_restarts_are_used_up(example, caplog):
    for logger in ("table", "tidegate.job"):
        caplog.set_level(logging.INFO, logger)
    word_count = example("word_count")
    env = restarting_environment()
    counts = word_count.count_words(env, watched(word_count.word_topic()), failures=4)
    counts.add_sink(lambda pair: logging.getLogger("table").info("(%s,%d)", *pair))
    with pytest.raises(UserFunctionError, match="custom error flag, restart application"):
        env.execute("word count")
    assert lines_of_the_table(caplog.messages) == [line.strip() for line in TABLE.split("\n")[1:-1]]


def test_the_word_count_recovers_and_says_that_its_counts_are_right(example):
    word_count = example("word_count")
    counts = word_count.count_words(restarting_environment(), word_count.word_topic(), failures=2)
    with counts.execute_and_collect() as stream:
        results = list(stream)
    assert results == [
        *[("a", 1), ("b", 1), ("a", 2)],
        *[("a", 3), ("c", 1)],
        *[("a", 3), ("c", 1)],
        *[("a", 3), ("c", 1), ("ERROR", 1)],
        *[("b", 2), ("a", 4)],
    ]
    assert word_count.verdict(results) == (
        "RIGHT: every word counts once (a 4, b 2, c 1, ERROR 1); "
        "4 results came again after a failure."
    )


@pytest.mark.parametrize("wrong", [("a", 5), ("b", 1), ("d", 1)])
def test_the_word_count_says_that_its_counts_are_wrong(example, wrong):
    right = [("a", 4), ("b", 2), ("c", 1), ("ERROR", 1)]
    with pytest.raises(SystemExit, match="WRONG"):
        example("word_count").verdict([*right, wrong])


def run_example(name, *arguments, temporary):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        env=environment(temporary),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.spark
@pytest.mark.slow
def test_the_word_count_as_a_script_fails_for_good_after_three_restarts(tmp_path):
    done = run_example("word_count.py", "--failures", "4", temporary=tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: custom error flag, restart application" in done.stderr
    results = re.findall(r"^\((\w+),(\d)\)$", done.stdout, re.MULTILINE)
    again = [("a", "3"), ("c", "1")]
    assert results == [("a", "1"), ("b", "1"), ("a", "2"), *again, *again, *again, *again]
    story = re.findall(
        r"tidegate\.\w+ - (?:pipeline 0 (failed), restart \d of at most 3"
        r"|(Restoring) job \w+ from Checkpoint \d+"
        r"|source 'Words' \(1/1\) (seeks to Partition\(topic='word', offset=28\))"
        r"|pipeline 0 failed, and the job with it: (fixed-delay allows no more than 3))",
        done.stderr,
    )
    once = ["failed", "Restoring", "seeks to Partition(topic='word', offset=28)"]
    allowed = "fixed-delay allows no more than 3"
    assert ["".join(each) for each in story] == [*once, *once, *once, allowed]
    assert re.search(r"Triggering checkpoint 1 \(type=CHECKPOINT\) @ \d+ for job", done.stderr)
    assert re.search(r"Completed checkpoint 1 for job \w+ \(\d+ bytes, .*=\d+ ms", done.stderr)


# --- page views ----------------------------------------------------------------------------------

VIEWS, RATE = 2000, 200
RESULT = re.compile(r"\d> (App\d\d): (\d+) views by (\d+) visitors")


@pytest.mark.spark
@pytest.mark.slow
def test_page_views_resume_from_the_checkpoint_after_a_kill(example, tmp_path):
    page_views = example("page_views")
    arguments = ["--checkpoint-dir", str(tmp_path / "checkpoints")]
    arguments += ["--views", str(VIEWS), "--rate", str(RATE)]
    before = results_in(run_until_killed([EXAMPLES / "page_views.py", *arguments], tmp_path))

    done = run_example("page_views.py", *arguments, temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Restoring job \w+ from Checkpoint \d+", done.stderr)
    read = offsets_before(re.findall(r"seeks to RangeSplit\(start=(\d+), stop=(\d+)", done.stderr))
    stored, all_views = defaultdict(list), defaultdict(list)
    for offset in range(VIEWS):
        view = page_views.view(offset)
        all_views[view.app_id].append(view.visitor)
        if offset in read:
            stored[view.app_id].append(view.visitor)

    after = results_in(done.stdout.splitlines())
    for app_id, visitors in all_views.items():
        counted = [views for views, _ in after[app_id]]
        assert counted == list(range(len(stored[app_id]) + 1, len(visitors) + 1))
        assert after[app_id][-1] == (len(visitors), len(set(visitors)))
        seen = [views for views, _ in before[app_id]]
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) >= len(stored[app_id])
    assert list((tmp_path / "checkpoints").rglob("_metadata")) == []


def run_until_killed(command, temporary):
    """Kill a script when results have followed its second checkpoint, or a later one."""
    lines, results, checkpoints = [], 0, 0
    with subprocess.Popen(
        [sys.executable, *command],
        env=environment(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout:
                lines.append(line)
                checkpoints += "Completed checkpoint" in line
                results = 0 if "Completed checkpoint" in line else results + ("views by" in line)
                if checkpoints >= 2 and results >= RATE // 4:
                    break
            family = family_of(process)
            os.kill(process.pid, 9)
            lines += process.stdout
            wait_until(lambda: not any(map(is_alive, family)))
        finally:
            end(process)
    assert checkpoints >= 2, "".join(lines)
    return lines


def is_alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def results_in(lines):
    """The results of every app in the order in which they were printed: (views, visitors)."""
    found = defaultdict(list)
    for line in lines:
        if match := RESULT.match(line):
            found[match[1]].append((int(match[2]), int(match[3])))
    return found


def offsets_before(splits):
    """What was read when these splits were stored; the log is cut into one for each subtask."""
    positions = {int(stop): int(start) for start, stop in splits}
    assert set(positions) == {VIEWS // 2, VIEWS}
    return {*range(positions[VIEWS // 2]), *range(VIEWS // 2, positions[VIEWS])}


# --- state ---------------------------------------------------------------------------------------


class FailOnce(MapFunction):
    """Fails at a message, in the first attempt."""

    def __init__(self, message):
        self.message = message

    def open(self, runtime_context):
        self.is_first = runtime_context.get_attempt_number() == 0

    def map(self, value):
        if self.is_first and value == self.message:
            raise RuntimeError("once")
        return json.loads(value)


def test_the_events_since_the_last_one_are_in_the_checkpoint(example):
    count_between_ones, topic = example("count_between_ones"), example("topic")
    bursts = [["1", "2", "3"], ["4", "5", "1", "3", "99"], ["4", "1"]]
    env, sink = restarting_environment(), CollectingSink()
    events = env.from_source(topic.Topic("events", bursts)).map(FailOnce("99"), Types.LONG())
    events.flat_map(count_between_ones.CountBetweenOnes(), Types.STRING()).sink_to(sink)
    env.execute()
    before_the_failure, again = "4     2 3 4 5", "4     2 3 4 5"
    assert sink.records == [before_the_failure, again, "3     3 99 4"]


def test_an_average_that_is_changed_in_place_resumes_from_the_checkpoint(example):
    keyed_average, topic = example("keyed_average"), example("topic")
    bursts = [["[1, 3]", "[2, 10]", "[1, 5]"], ["[1, 7]", "[2, 20]", "[9, 9]"], ["[2, 60]"]]
    env, sink = restarting_environment(), CollectingSink()
    measures = env.from_source(topic.Topic("measures", bursts)).map(FailOnce("[9, 9]"))
    averages = measures.map(tuple, keyed_average.PAIR).key_by(lambda pair: pair[0])
    averages.flat_map(keyed_average.AverageOfThree(), keyed_average.PAIR).sink_to(sink)
    env.execute()
    assert sink.records == [(1, 5), (1, 5), (2, 30)]
