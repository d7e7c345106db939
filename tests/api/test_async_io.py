"""Async I/O in whole jobs, with a real HTTP server on loopback."""

import asyncio
import threading

import pytest

from tests.api.results import collect, in_any_order
from tests.programs import PATIENCE, wait_until
from tests.taps import Tap
from tidegate.common import Time, Types
from tidegate.core.errors import ConfigError
from tidegate.datastream import AsyncDataStream, AsyncFunction, MapFunction
from tidegate.datastream.async_retry_predicates import has_exception_predicate
from tidegate.datastream.async_retry_strategies import FixedDelayRetryStrategy
from tidegate.testing.environments import mini_environment

HOUR = Time.hours(1)


class Server:
    """An HTTP server that answers once a number of requests are there at the same time."""

    def __init__(self, at_once=1):
        self.at_once = at_once
        self.requests = []
        self.most = 0
        self._open = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        started = threading.Event()

        async def serve():
            self._enough = asyncio.Event()
            self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            self.port = self._server.sockets[0].getsockname()[1]
            started.set()

        self._thread.start()
        asyncio.run_coroutine_threadsafe(serve(), self._loop)
        assert started.wait(PATIENCE)
        return self

    def __exit__(self, *failure):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    def _run(self):
        self._loop.run_forever()

    async def _answer(self, reader, writer):
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = request.split()[1]
        self.requests.append(path)
        self._open += 1
        self.most = max(self.most, self._open)
        if self._open >= self.at_once:
            self._enough.set()
        await self._enough.wait()
        self._open -= 1
        body = path[1:].upper().encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()


class Ask(AsyncFunction):
    """Asks the server for every record."""

    def __init__(self, port):
        self.port = port

    async def async_invoke(self, value):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET /{value} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        return [answer.split("\r\n\r\n")[1]]


NAMES = [f"name-{n}" for n in range(40)]
UPPER = [name.upper() for name in NAMES]


def test_as_many_requests_as_the_capacity_are_under_way_at_once(env):
    env.set_parallelism(1)
    names = env.from_collection(NAMES, Types.STRING())
    with Server(at_once=20) as server:
        answers = AsyncDataStream.unordered_wait(
            names, Ask(server.port), HOUR, capacity=20, output_type=Types.STRING()
        )
        assert in_any_order(answers) == sorted(UPPER)
        assert server.most == 20


def test_ordered_answers_keep_the_order_of_their_records(env):
    env.set_parallelism(1)
    with Server(at_once=5) as server:
        names = env.from_collection(NAMES)
        assert collect(AsyncDataStream.ordered_wait(names, Ask(server.port), HOUR, 5)) == UPPER


def test_a_request_is_repeated_as_its_strategy_says(env):
    class Unreliable(AsyncFunction):
        def open(self, runtime_context):
            self.seen = set()

        async def async_invoke(self, value):
            if value not in self.seen:
                self.seen.add(value)
                raise ConnectionError("try again")
            return [value]

    strategy = FixedDelayRetryStrategy(1, 1, None, has_exception_predicate)
    for wait in (
        AsyncDataStream.unordered_wait_with_retry,
        AsyncDataStream.ordered_wait_with_retry,
    ):
        numbers = env.from_collection([1, 2, 3])
        assert in_any_order(wait(numbers, Unreliable(), HOUR, strategy)) == [1, 2, 3]


asked = []
may_answer = threading.Event()


def ask(value):
    asked.append(value)


async def permission():
    while not may_answer.is_set():
        await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def closed():
    asked.clear()
    may_answer.clear()
    yield
    may_answer.set()


class Stuck(AsyncFunction):
    """Answers when the test allows it."""

    async def async_invoke(self, value):
        ask(value)
        await permission()
        return [value * 10]


class FailOnce(MapFunction):
    def open(self, runtime_context):
        self.fails = runtime_context.get_attempt_number() == 0

    def map(self, value):
        if self.fails and value == 30:
            raise ValueError("once")
        return value


def checkpointed(parallelism=1, **settings):
    return mini_environment(
        {
            "execution.checkpointing.interval": "10 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "1 ms",
            **settings,
        },
        parallelism=parallelism,
    )


def test_checkpoints_complete_while_every_request_is_stuck_and_after_the_end_of_the_input(tmp_path):
    env = checkpointed()
    stuck = AsyncDataStream.ordered_wait(env.from_collection([1, 2, 3]), Stuck(), HOUR, 1)
    stuck.uid("stuck").map(FailOnce()).print()
    job = env.execute_async()
    wait_until(lambda: asked)
    first = job.trigger_savepoint(str(tmp_path)).result(PATIENCE)
    second = job.trigger_savepoint(str(tmp_path)).result(PATIENCE)
    assert first != second
    may_answer.set()
    job.wait(PATIENCE)


def test_requests_in_flight_are_sent_again_after_a_failure_and_count_once():
    env = checkpointed()
    numbers = env.from_collection(list(range(200)))
    answers = AsyncDataStream.unordered_wait(numbers, Stuck(), HOUR, 7).map(FailOnce())
    sums = answers.key_by(lambda n: 0).reduce(lambda a, b: a + b)
    with sums.execute_and_collect() as results:
        wait_until(lambda: asked)
        may_answer.set()
        assert max(results) == 10 * sum(range(200))
    assert len(asked) >= 200


@pytest.mark.parametrize("parallelism", [1, 3])
def test_requests_in_flight_are_part_of_a_savepoint(tmp_path, parallelism):
    def program(tap, parallelism, **settings):
        env = checkpointed(parallelism, **settings)
        answers = AsyncDataStream.ordered_wait(
            env.from_source(tap).uid("source"), Stuck(), HOUR, capacity=2
        )
        return answers.uid("async")

    tap = Tap([1, 2, 3, 4, 5])
    stream = program(tap, 1)
    stream.print()
    job = stream.get_execution_environment().execute_async()
    tap.let(4)
    wait_until(lambda: len(asked) == 2)
    path = job.stop_with_savepoint(False, str(tmp_path)).result(PATIENCE)
    job.wait(PATIENCE)
    may_answer.set()
    tap.let(5)
    restored = program(tap, parallelism, **{"execution.state-recovery.path": path})
    assert in_any_order(restored) == [10, 20, 30, 40, 50]


def test_a_stop_that_drains_waits_for_the_answers(tmp_path):
    env = checkpointed()
    tap = Tap(range(10))
    numbers = AsyncDataStream.unordered_wait(env.from_source(tap), Stuck(), HOUR, capacity=1)
    with numbers.execute_and_collect() as results:
        tap.let(3)
        wait_until(lambda: asked)
        stopped = results._job.stop_with_savepoint(True, str(tmp_path))
        may_answer.set()
        stopped.result(PATIENCE)
        assert list(results) == [0, 10, 20]


def test_sources_are_not_read_while_there_is_no_room_for_more_requests(tmp_path):
    env = checkpointed()
    tap = Tap(range(100_000), is_open=True)
    stuck = AsyncDataStream.unordered_wait(env.from_source(tap), Stuck(), HOUR, capacity=5)
    stuck.print()
    job = env.execute_async()
    wait_until(lambda: len(asked) == 5)
    read = tap.reached()
    for _ in range(3):  # each of them takes a step
        job.trigger_savepoint(str(tmp_path)).result(PATIENCE)
    job.cancel_and_wait()
    assert tap.reached() == read <= 4096


def test_what_is_no_coroutine_is_refused_at_once(env):
    class Plain(AsyncFunction):
        def async_invoke(self, value):
            return [value]

    numbers = env.from_collection([1])
    with pytest.raises(TypeError, match="async def"):
        AsyncDataStream.ordered_wait(numbers, Plain(), HOUR)
    with pytest.raises(ConfigError, match="capacity"):
        AsyncDataStream.ordered_wait(numbers, Stuck(), HOUR, 0)
    strategy = FixedDelayRetryStrategy(1, 1, None, None)
    with pytest.raises(ConfigError, match="above zero"):
        AsyncDataStream.ordered_wait_with_retry(numbers, Stuck(), 0, strategy)
