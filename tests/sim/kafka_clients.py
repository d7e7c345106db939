"""What the real Kafka sink talks to instead of librdkafka, kafka-python and a thread."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kafka import errors as kafka_errors
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest

from tests.sim.bank import at_moment
from tests.sim.clockwork import Killed, Process, world
from tests.sim.kafka import LONGEST_TIMEOUT_MS, NODES, PARTITIONS, Kafka
from tidegate.connectors.guarantee import DeliveryGuarantee
from tidegate.connectors.kafka import broker_client, producing, transactional_writer
from tidegate.connectors.kafka.consumer_settings import PATIENCE
from tidegate.connectors.kafka.record_serialization import KafkaRecordSerializationSchema
from tidegate.connectors.kafka.sink import KafkaSink

_PAUSE_SECONDS = 0.05
TOPIC = "results"


def kafka_sink(pipeline: int) -> KafkaSink:
    rnd = random.Random(f"{world().plan.seed}/kafka")
    return KafkaSink(
        f"simulated:{pipeline}",
        KafkaRecordSerializationSchema(TOPIC, lambda record: repr(record).encode()),
        delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE,
        properties={
            PATIENCE: rnd.choice([1, 500, 3000]),
            "delivery.timeout.ms": rnd.choice([200, 3000]),
        },
    )


def _brokers(servers: str) -> Kafka:
    brokers = world().banks[int(servers.rpartition(":")[2])]
    assert isinstance(brokers, Kafka)
    return brokers


# --- confluent-kafka ----------------------------------------------------------------------------


class SimulatedProducer:
    """A client of librdkafka: it sends when it is served, and tries again by itself."""

    def __init__(self, settings: dict[str, Any], logger: Any) -> None:
        self._kafka = _brokers(settings["bootstrap.servers"])
        self._id: str = settings.get("transactional.id", "")
        self._timeout_ms: int = settings.get("transaction.timeout.ms", 0)
        self._patience = settings["delivery.timeout.ms"] / 1000
        self._on_delivery, self._on_error = settings["on_delivery"], settings["error_cb"]
        self._queue: list[bytes] = []
        self._arrived = 0
        """How many of the queue have arrived, if the brokers' answer was lost."""
        self._failing_since: float | None = None
        self._producer_id = self._epoch = -1
        self._is_fenced = False

    def list_topics(self, topic: str | None, timeout: float) -> Any:
        try:
            with self._kafka.called("look", acts=False):
                return SimpleNamespace(topics={topic: SimpleNamespace(error=None)})
        except kafka_errors.KafkaConnectionError:
            sleep(timeout)
            raise _raised(KafkaError._TRANSPORT) from None

    def init_transactions(self, timeout: float) -> None:
        def init() -> None:
            found = self._kafka.init(self._id, self._timeout_ms)
            self._producer_id, self._epoch = found.producer_id, found.epoch

        def init_late() -> None:
            self._kafka.take_over_late(self._id, self._timeout_ms)

        _at_moment(self._kafka, "a transaction begins", init, init_late)
        self._until(timeout, "begin", init, init_late)

    def begin_transaction(self) -> None:
        """The brokers hear of it with the first message."""

    def produce(self, topic: str, value: bytes, *more: Any) -> None:
        self._queue.append(value)

    def poll(self, seconds: float) -> None:
        if world().sim.chance(0.5):
            self._send()

    def flush(self, seconds: float) -> int:
        self._send()
        if self._is_fenced:
            raise _raised(KafkaError._FENCED)
        if self._queue:
            sleep(seconds)
        return len(self._queue)

    def purge(self) -> None:
        self._queue.clear()
        self._arrived = 0

    def abort_transaction(self, timeout: float) -> None:
        def abort() -> None:
            self._kafka.end(self._id, self._producer_id, self._epoch, commits=False)

        self._until(timeout, "abort", abort, abort)

    def _until(
        self, timeout: float, what: str, act: Callable[[], None], late: Callable[[], None]
    ) -> None:
        sim = world().sim
        deadline = sim.monotonic() + timeout
        while True:
            is_run = False
            try:
                with self._kafka.called(what):
                    is_run = True
                    self._require_loaded()
                    act()
                return
            except kafka_errors.KafkaError as error:
                if not is_run:
                    self._kafka.later(late)
                if not error.retriable:
                    raise _raised(error.errno) from None
                if sim.monotonic() + _PAUSE_SECONDS > deadline:
                    raise _raised(KafkaError._TIMED_OUT) from None
            sleep(_PAUSE_SECONDS)

    def _require_loaded(self) -> None:
        if self._kafka.is_loading:
            raise kafka_errors.CoordinatorLoadInProgressError

    def _send(self) -> None:
        if not self._queue:
            return
        now = world().sim.monotonic()
        try:
            with self._kafka.called("write"):
                self._require_loaded()
                if missing := self._queue[self._arrived :]:
                    self._kafka.send(self._id, self._producer_id, self._epoch, missing)
                self._arrived = len(self._queue)
        except kafka_errors.KafkaError as error:
            self._failing_since = self._failing_since or now
            if not error.retriable:
                self._is_fenced = True
                self._on_error(KafkaError(KafkaError._FENCED, "it is fenced", True))
                self._fail(error.errno)
            elif now > self._failing_since + self._patience:
                self._fail(KafkaError._MSG_TIMED_OUT)
        else:
            self.purge()
            self._failing_since = None

    def _fail(self, code: int) -> None:
        message = SimpleNamespace(topic=lambda: TOPIC)
        self._on_delivery(KafkaError(code, "not delivered"), message)
        self.purge()


def _at_moment(
    kafka: Kafka, moment: str, act: Callable[[], None], late: Callable[[], None]
) -> None:
    """What a dying process has asked for arrives at once, later, or never."""
    is_run = False

    def once() -> None:
        nonlocal is_run
        is_run = True
        act()

    try:
        at_moment(moment, once)
    except Killed:
        if not is_run:
            kafka.later(late)
        raise


def _raised(code: int) -> KafkaException:
    return KafkaException(KafkaError(code, "simulated"))


# --- kafka-python -------------------------------------------------------------------------------


class SimulatedConnections:
    """Sends one request at a time to one broker."""

    def __init__(self, selector: Any, bootstrap_servers: list[str], **settings: Any) -> None:
        self._kafka = _brokers(bootstrap_servers[0])
        self._net = selector
        self.cluster = self

    def brokers(self) -> list[Any]:
        return [SimpleNamespace(node_id=node) for node in range(NODES)]

    def bootstrap(self, timeout_ms: int) -> None:
        with self._kafka.called("look", acts=False):
            pass

    def run(self, request: Callable[[], Awaitable[Any]]) -> Any:
        coroutine: Any = request()
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("nothing is awaited here")

    def close(self) -> None:
        """There is nothing to close."""

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        kafka = self._kafka
        match request:
            case InitProducerIdRequest():
                return self._coordinated(request, node_id, "abort", self._init, self._init_late)
            case EndTxnRequest():
                return self._coordinated(request, node_id, "commit", self._end, self._end)
        with kafka.called(_CALLS.get(type(request), "look"), acts=False):
            match request:
                case FindCoordinatorRequest():
                    return _answer(node_id=kafka.coordinator_of(request.key))
                case MetadataRequest():
                    partitions = [
                        SimpleNamespace(partition_index=each, leader_id=kafka.leader_of(each))
                        for each in range(PARTITIONS)
                    ]
                    return SimpleNamespace(topics=[_answer(partitions=partitions)])
                case DescribeTransactionsRequest():
                    return SimpleNamespace(transaction_states=[self._described(request, node_id)])
                case DescribeProducersRequest():
                    return self._producers(request, node_id)
                case ListTransactionsRequest():
                    return self._listed(node_id)
                case DescribeConfigsRequest():
                    setting = SimpleNamespace(value=str(LONGEST_TIMEOUT_MS))
                    return SimpleNamespace(results=[SimpleNamespace(configs=[setting])])
                case FetchRequest():
                    return self._fetched(request, node_id)
        raise AssertionError(f"nobody answers to {request}")

    def _coordinated(
        self,
        request: Any,
        node: int | None,
        what: str,
        act: Callable[[Any], None],
        late: Callable[[Any], None],
    ) -> Any:
        """What changes something; who dies may have asked for it."""
        is_commit = what == "commit"
        moment = "a transaction is committed" if is_commit else "a leftover is aborted"
        is_run = False
        _at_moment(self._kafka, moment, lambda: act(request), lambda: late(request))
        try:
            with self._kafka.called(what):
                is_run = True
                try:
                    self._require_coordinator(request.transactional_id, node)
                    act(request)
                except kafka_errors.BrokerResponseError as error:
                    return _answer(error)
        except kafka_errors.KafkaConnectionError:
            if not is_run:
                self._kafka.later(lambda: late(request))
            raise
        return _answer()

    def _init_late(self, request: Any) -> None:
        self._kafka.take_over_late(request.transactional_id, request.transaction_timeout_ms)

    def _init(self, request: Any) -> None:
        self._kafka.init(request.transactional_id, request.transaction_timeout_ms)

    def _end(self, request: Any) -> None:
        self._kafka.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commits=request.committed,
        )

    def _require_coordinator(self, name: str, node: int | None) -> None:
        if node != self._kafka.coordinator_of(name):
            raise kafka_errors.NotCoordinatorError
        if self._kafka.is_loading:
            raise kafka_errors.CoordinatorLoadInProgressError

    def _described(self, request: Any, node: int | None) -> Any:
        [name] = request.transactional_ids
        try:
            self._require_coordinator(name, node)
            if name not in self._kafka.ids:
                raise kafka_errors.TransactionalIdNotFoundError
        except kafka_errors.BrokerResponseError as error:
            return _answer(error)
        found = self._kafka.ids[name]
        topics = [SimpleNamespace(topic=TOPIC, partitions=sorted(found.partitions))]
        return _answer(
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
            transaction_timeout_ms=found.timeout_ms,
            transaction_state=found.state.value,
            topics=topics if found.partitions else [],
        )

    def _producers(self, request: Any, node: int | None) -> Any:
        [topic] = request.topics
        [partition] = topic.partition_indexes
        begun = self._kafka.logs[partition].begun
        world().moment("a transaction is prepared")
        self._kafka.confirm()
        found = _answer(
            self._wrong_leader(partition, node),
            active_producers=[
                SimpleNamespace(producer_id=each, current_txn_start_offset=offset)
                for each, offset in begun.items()
            ],
        )
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[found])])

    def _listed(self, node: int | None) -> Any:
        if self._kafka.is_loading:
            return _answer(kafka_errors.CoordinatorLoadInProgressError())
        names = [name for name in self._kafka.ids if self._kafka.coordinator_of(name) == node]
        states = [SimpleNamespace(transactional_id=name) for name in sorted(names)]
        return _answer(transaction_states=states)

    def _fetched(self, request: Any, node: int | None) -> Any:
        [topic] = request.topics
        [part] = topic.partitions
        records = self._kafka.logs[part.partition].read(part.fetch_offset)
        if not records:
            sleep(request.max_wait_ms / 1000)
        found = _answer(self._wrong_leader(part.partition, node), records=records)
        return _answer(responses=[SimpleNamespace(partitions=[found])])

    def _wrong_leader(self, partition: int, node: int | None) -> kafka_errors.KafkaError | None:
        is_leader = node == self._kafka.leader_of(partition)
        return None if is_leader else kafka_errors.NotLeaderForPartitionError()


_CALLS = {DescribeTransactionsRequest: "prepare", DescribeProducersRequest: "prepare"}


def _answer(error: kafka_errors.KafkaError | None = None, **fields: Any) -> Any:
    return SimpleNamespace(error_code=0 if error is None else error.errno, **fields)


# --- the thread of a writer ---------------------------------------------------------------------


class _Later(BaseException):
    """What runs in the background waits, and will be run again from its start."""


_background: list[Process] = []
"""Those whose background thread runs, the innermost one last."""


def sleep(seconds: float) -> None:
    """What `time.sleep` is to a thread: meanwhile others act."""
    sim = world().sim
    if _background and _background[-1] is sim.current:
        raise _Later
    if sim.current is None:
        sim.sleep(seconds)
    else:
        sim.meanwhile(seconds)


class Background:
    """A thread that prepares the next transaction; whoever waits for it does its work."""

    def __init__(self, threads: int, thread_name_prefix: str) -> None:
        process = world().sim.current
        assert process is not None
        self._process = process
        self._promises: list[_Promise] = []

    def submit(self, act: Callable[..., Any], *arguments: Any) -> _Promise:
        promise = _Promise(self._process, lambda: act(*arguments))
        self._promises.append(promise)
        return promise

    def shutdown(self, *, cancel_futures: bool) -> None:
        for promise in self._promises:
            promise.is_over = True


class _Promise:
    def __init__(self, process: Process, act: Callable[[], Any]) -> None:
        self._process, self._act = process, act
        self._result: Any = None
        self._error: Exception | None = None
        self.is_over = self._is_running = False
        self._later()

    def _later(self) -> None:
        delay = self._process.sim.delay(0.05)
        self._process.later(delay, "kafka-sink", self._run_in_background)

    def _run_in_background(self) -> None:
        if self.is_over or self._is_running:
            return
        _background.append(self._process)
        try:
            self._run()
        except _Later:
            self._later()
        finally:
            _background.pop()

    def _run(self) -> None:
        self._is_running = True
        try:
            self._result = self._act()
        except Exception as error:
            self._error = error
        finally:
            self._is_running = False
        self.is_over = True

    def exception(self) -> Exception | None:
        if not self.is_over:
            self._run()
        return self._error

    def result(self) -> Any:
        if (error := self.exception()) is not None:
            raise error
        return self._result


PATCHES = (
    (producing, "Producer", SimulatedProducer),
    (broker_client, "KafkaConnectionManager", SimulatedConnections),
    (broker_client, "NetworkSelector", lambda **settings: SimpleNamespace(close=lambda: None)),
    (transactional_writer, "ThreadPoolExecutor", Background),
)
