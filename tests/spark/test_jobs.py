"""Whole jobs on Spark: what they compute, and how they fail."""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

import tidegate
from tests.effort import seed, times
from tests.programs import (
    PATIENCE,
    apply,
    collected,
    graph_of,
    keyed,
    mapped,
    needs_streaming_shuffle,
    read,
    results_of,
    settings_of,
    wait_until,
)
from tests.properties.random_programs import RunningTotal, remainder
from tests.strangers import attack
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.core.errors import (
    JobCanceled,
    NotEnoughTaskSlots,
    NotSerializable,
    UserFunctionError,
)
from tidegate.core.ids import Address
from tidegate.driver.launch import submit
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Broadcast, Rebalance
from tidegate.operators.functions import MapFunction
from tidegate.operators.stateless import FlatMapOperator
from tidegate.state.keys.selection import select_key
from tidegate.transport.wire import this_machine

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LINES = ["to be or not to be", "that is the question", "to sleep"]


@pytest.fixture(params=[pytest.param("pipelined", marks=needs_streaming_shuffle), "jobs"])
def run(request, spark, traces):
    """Submit a job; whatever becomes of it, nothing of it stays."""

    def start(graph, settings=None):
        return submit(
            graph,
            spark.sparkContext,
            settings_of({"tidegate.exchange": request.param} | (settings or {})),
        )

    return start


def fails(handle, error):
    with pytest.raises(error) as failure:
        handle.result(PATIENCE)
    return failure.value


def test_words_are_counted_over_two_slots(run):
    words = apply(FlatMapOperator(str.split), read(LINES), name="split")
    placed = mapped(lambda word: (word, os.getpid()), keyed(str, words), name="place")
    (results,) = results_of(run(graph_of(collected(placed), parallelism=2)))
    assert Counter(word for word, _ in results) == Counter(" ".join(LINES).split())
    slots_of = {word: {pid for other, pid in results if other == word} for word, _ in results}
    assert all(len(pids) == 1 for pids in slots_of.values()), "a word is counted in one place"
    assert len(set.union(*slots_of.values())) == 2, "both slots have their share"


def test_running_totals_by_key_are_exact_over_many_steps(run):
    key = select_key(remainder)
    numbers = read(NumberSequenceSource(1, 600), parallelism=1)
    totals = apply(RunningTotal(key, sums=True), keyed(remainder, numbers), is_keyed=True)
    job = graph_of(collected(totals), parallelism=2)
    (results,) = results_of(run(job, {"tidegate.step.max-records": 100}))
    assert sorted(results) == sorted(RunningTotal(key, sums=True).results(range(1, 601), {}))


def test_three_exchanges_in_a_row(run):
    stream = read(range(20))
    for _ in range(3):
        stream = mapped(lambda x: x + 1, Upstream(stream, Rebalance()))
    job = graph_of(collected(stream), parallelism=2)
    assert job.pipelines[0].levels == 4
    (results,) = results_of(run(job))
    assert sorted(results) == list(range(3, 23))


def test_a_job_of_one_slot_needs_no_shuffle(run):
    stream = mapped(lambda x: x * 2, keyed(abs, mapped(lambda x: x + 1, read(range(5)))))
    job = graph_of(collected(stream), parallelism=1)
    assert job.pipelines[0].levels == 2
    (results,) = results_of(run(job))
    assert results == [2, 4, 6, 8, 10]


def test_vertices_of_different_parallelism(run):
    one = mapped(lambda x: x + 1, read(range(10), parallelism=1), parallelism=1)
    both = mapped(lambda x: x * 10, Upstream(one, Broadcast()), parallelism=2)
    narrow = collected(both, parallelism=1)
    (results,) = results_of(run(graph_of(narrow)))
    assert sorted(results) == sorted([x * 10 for x in range(1, 11)] * 2)


def test_two_jobs_one_after_the_other(run):
    for base in (0, 100):
        stream = mapped(lambda x, base=base: x + base, Upstream(read(range(4)), Rebalance()))
        (results,) = results_of(run(graph_of(collected(stream), parallelism=2)))
        assert sorted(results) == [base, base + 1, base + 2, base + 3]


def test_two_pipelines_in_one_job(run):
    first = collected(mapped(lambda x: x + 1, keyed(abs, read(range(5)))), "first")
    second = collected(mapped(lambda x: -x, Upstream(read(range(7)), Rebalance())), "second")
    job = graph_of(first, second, parallelism=2)
    assert len(job.pipelines) == 2
    ones, others = results_of(run(job), "first", "second")
    assert sorted(ones) == [1, 2, 3, 4, 5]
    assert sorted(others) == [-6, -5, -4, -3, -2, -1, 0]


def test_a_user_exception_names_operator_subtask_and_record_and_shows_the_users_traceback(run):
    def divide(x):
        return 10 // x

    stream = mapped(divide, read([5, 2, 0, 1], parallelism=1), name="divide", uid="division")
    handle = run(graph_of(collected(stream, parallelism=1), parallelism=1))
    failure = fails(handle, UserFunctionError)
    operator, uid, subtask, record, traceback = failure.args
    assert (operator, uid, subtask, record) == ("divide", "division", "(1/1)", "0")
    assert failure.cause == "ZeroDivisionError: integer division or modulo by zero"
    shown = str(failure).splitlines()
    assert shown[0] == "Traceback (most recent call last):"
    assert shown[1].endswith("in divide")
    assert "java" not in str(failure).lower()
    assert str(Path(tidegate.__file__).parent) not in traceback
    assert list_until_failure(handle) == [2, 5], "what came before the failing record got through"


def list_until_failure(handle, name="results"):
    results = []
    with pytest.raises(UserFunctionError):
        results.extend(iter_into(results, handle.collected(name, None)))
    return results


def iter_into(results, stream):
    for record in stream:
        results.append(record)
    return ()


def test_sys_exit_in_user_code_is_a_failure_of_the_job(run):
    stream = mapped(lambda x: sys.exit(3), Upstream(read([1, 2]), Rebalance()), name="leave")
    failure = fails(run(graph_of(collected(stream), parallelism=2)), UserFunctionError)
    assert failure.args[0] == "leave"
    assert failure.cause == "SystemExit: 3"


def test_a_key_selector_that_raises_is_a_failure_of_the_job(run):
    stream = mapped(abs, keyed(lambda x: x["missing"], read([{"there": 1}])))
    failure = fails(run(graph_of(collected(stream), parallelism=2)), UserFunctionError)
    assert failure.cause == "KeyError: 'missing'"


def test_sys_exit_in_a_key_selector_is_a_failure_of_the_job(run):
    stream = mapped(abs, keyed(lambda x: sys.exit("no key"), read([1, 2, 3])))
    failure = fails(run(graph_of(collected(stream), parallelism=2)), UserFunctionError)
    assert failure.cause == "SystemExit: no key"


def test_a_function_that_raises_in_open_fails_the_job_with_its_name(run):
    class Opening(MapFunction):
        def open(self, runtime_context):
            raise OSError("no route to the database")

        def map(self, value):
            return value

    stream = mapped(Opening(), read(range(3)), name="connect")
    failure = fails(run(graph_of(collected(stream), parallelism=2)), UserFunctionError)
    assert failure.args[0] == "connect"
    assert failure.cause == "OSError: no route to the database"


def test_a_record_that_cannot_travel_is_named(run):
    stream = mapped(lambda x: (x, Path(os.devnull).open()), read([41]), name="opens")  # noqa: SIM115
    there = mapped(lambda pair: pair[0], Upstream(stream, Broadcast()))
    failure = fails(run(graph_of(collected(there), parallelism=2)), UserFunctionError)
    assert "record (41, <_io.TextIOWrapper" in str(failure)


def test_a_lock_in_a_function_is_refused_before_anything_starts(spark, traces):
    import threading

    lock = threading.Lock()

    def guarded(x):
        with lock:
            return x

    job = graph_of(collected(mapped(guarded, read(range(3)), name="guarded")), parallelism=2)
    with pytest.raises(NotSerializable, match=r"operator 'guarded'.*lock"):
        submit(job, spark.sparkContext, settings_of())
    assert traces.are_gone()


def test_too_few_task_slots_are_refused_at_once(spark, traces):
    job = graph_of(collected(read(range(3))), parallelism=16)
    with pytest.raises(NotEnoughTaskSlots, match=r"runs 16 task.* needs 17, better 32"):
        submit(job, spark.sparkContext, settings_of())
    assert traces.are_gone()


def shuffle_files(directory):
    """What os.walk finds: it passes over directories that are deleted meanwhile."""
    names = {name for _, _, files in os.walk(directory) for name in files}
    return {name for name in names if name.startswith("shuffle_")}


def test_a_step_leaves_no_shuffle_files(run, temporary):
    before = shuffle_files(temporary / "spark")
    stream = mapped(lambda x: x + 1, Upstream(read(NumberSequenceSource(1, 500)), Rebalance()))
    handle = run(graph_of(collected(stream), parallelism=2), {"tidegate.step.max-records": 25})
    results_of(handle)
    assert handle.progress().steps >= 10
    # Spark deletes them on a thread of its own.
    wait_until(lambda: shuffle_files(temporary / "spark") <= before)


def test_strangers_on_its_sockets_leave_a_running_job_alone(run, temporary, tmp_path):
    before = set(temporary.rglob("*.sock"))
    numbers = read(NumberSequenceSource(0, 10**12))
    stream = mapped(lambda number: number, Upstream(numbers, Rebalance()))
    handle = run(graph_of(collected(stream), parallelism=2), {"tidegate.step.max-records": 50})
    results = handle.collected("results", None)
    seen = [next(results)]
    sockets = sorted(set(temporary.rglob("*.sock")) - before)
    assert [path.name for path in sockets].count("steps.sock") == 2
    first = seed()
    for number, path in enumerate(sockets):
        address = Address("", 0, str(path), this_machine())
        attack(address, first + number, times(150), tmp_path / "sprung")
        seen += [next(results) for _ in range(200)]
    assert len(set(seen)) == len(seen)
    assert not handle.chronicle.failures
    assert not (tmp_path / "sprung").exists()
    handle.cancel()
    assert fails(handle, JobCanceled)
