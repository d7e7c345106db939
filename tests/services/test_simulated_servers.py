"""The simulator's brokers and database answer as real ones do; see `docs/proof.md`."""

import uuid

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("psycopg")

import psycopg
from psycopg import sql

from tests.programs import wait_until
from tests.services.simulated import simulated
from tests.sim.kafka_clients import TOPIC
from tidegate.connectors.kafka.broker_client import BrokerClient
from tidegate.connectors.kafka.producer_settings import ProducerSettings
from tidegate.connectors.kafka.producing import RecordProducer
from tidegate.connectors.kafka.transactions import (
    BrokerTransactions,
    KafkaTransaction,
    TransactionState,
)
from tidegate.core.errors import TidegateError
from tidegate.core.permit import Permit


class Script:
    """What was done, and what came of it."""

    def __init__(self):
        self.outcomes = []

    def __call__(self, name, act):
        try:
            outcome = act()
        except (TidegateError, psycopg.Error) as error:
            outcome = type(error).__name__
        self.outcomes.append((name, outcome))


def kafka_transactions(servers, topic, pause):
    """The life of the transactions of one id: committed, taken over, aborted."""
    settings = ProducerSettings.of({"bootstrap.servers": servers})
    transactions = BrokerTransactions(BrokerClient(settings))
    name = f"id-{uuid.uuid4()}"
    script = Script()

    def producer():
        found = RecordProducer(
            settings.extended(
                transactional_id=name, transaction_timeout_ms=60_000, delivery_timeout_ms=60_000
            )
        )
        found.connect(topic)
        found.begin_transactions(Permit())
        return found

    def write(with_producer):
        with_producer.send(topic, [(b"('a', 1)", None, 0, None)])
        with_producer.flush()

    def committable():
        found = transactions.describe(name)
        first = transactions.first_record(found.producer_id, *found.partition)
        return KafkaTransaction(name, found.producer_id, found.epoch, found.timeout_ms, first)

    def ended():
        pause()
        wait_until(lambda: transactions.describe(name).partition is None)
        found = transactions.describe(name)
        return found.state, found.epoch - begun.epoch

    script("an id that nobody has used", lambda: transactions.describe(name))
    one = producer()
    begun = transactions.describe(name)
    script("an id without a record", lambda: (begun.state, begun.partition))
    write(one)
    script("an id with a record", lambda: transactions.describe(name).state)
    first = committable()
    script("where it begins", lambda: first.first_record.offset)
    script("a commit", lambda: transactions.commit(first))
    script("a commit again", lambda: transactions.commit(first))
    script("committed", ended)
    two = producer()
    script("taken over", ended)
    script("a commit before it was taken over", lambda: transactions.commit(first))
    write(two)
    second = committable()
    transactions.fence(name, 60_000, Permit())
    script("fenced", ended)
    script("a commit of what was aborted", lambda: transactions.commit(second))
    script("a write of who is fenced", lambda: write(two))
    three = producer()
    write(three)
    third = committable()
    three.abort()
    script("aborted by itself", ended)
    script("a commit of what it has aborted", lambda: transactions.commit(third))
    script("ids", lambda: len(transactions.ids_beginning_with(name)))
    other = KafkaTransaction(f"{name}-other", 1, 0, 60_000, None)
    script("a commit of an unknown id", lambda: transactions.commit(other))
    transactions.close()
    return script.outcomes


def test_simulated_brokers_answer_as_real_ones_do(kafka, new_topic):
    real = kafka_transactions(kafka, new_topic(), lambda: None)
    with simulated("kafka") as pause:
        assert kafka_transactions("simulated:0", TOPIC, pause) == real
    assert dict(real)["committed"] == (TransactionState.ENDED, 0)


def postgres_transactions(connect, pause):
    """Transactions that are prepared, ended twice, and lost with their sessions."""
    script = Script()
    one, two = connect("one"), connect("two")

    def run(connection, statement, *names):
        text = sql.SQL(statement).format(*map(sql.Literal, names))
        return connection.execute(text).statusmessage

    def write(connection):
        with connection.cursor().copy("COPY results (line) FROM STDIN") as copy:
            copy.write_row(["('a', 1)"])

    def begin(connection):
        connection.execute("BEGIN")
        ((number,),) = connection.execute("SELECT txid_current()").fetchall()
        write(connection)
        return number

    def status(number):
        return two.execute("SELECT txid_status(%s)", (number,)).fetchall()

    def prepared(name):
        number = begin(one)
        script("prepared", lambda: run(one, "PREPARE TRANSACTION {}", name))
        return number

    name, other = f"test:{uuid.uuid4()}", f"test:{uuid.uuid4()}"
    number = prepared(name)
    script("its fate", lambda: status(number))
    begin(one)
    script("a name that is in use", lambda: run(one, "PREPARE TRANSACTION {}", name))
    script("a commit by another", lambda: run(two, "COMMIT PREPARED {}", name))
    script("a commit again", lambda: run(two, "COMMIT PREPARED {}", name))
    script("the fate of what was committed", lambda: status(number))
    number = prepared(other)
    script("rolled back", lambda: run(two, "ROLLBACK PREPARED {}", other))
    script("rolled back again", lambda: run(two, "ROLLBACK PREPARED {}", other))
    script("the fate of what was rolled back", lambda: status(number))
    script("the fate of what is to come", lambda: status(number + 1000))
    number = begin(one)
    found = two.execute(
        "SELECT pid, application_name FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ).fetchall()
    [pid] = [pid for pid, application in found if application == "one"]
    two.execute("SELECT pg_terminate_backend(%s)", (pid,))
    pause()
    wait_until(lambda: status(number) == [("aborted",)])
    script("a statement of who was ended", lambda: write(one))
    return script.outcomes


def test_a_simulated_database_answers_as_a_real_one_does(postgres):
    def connect(application):
        return psycopg.connect(postgres, autocommit=True, application_name=application)

    def connect_simulated(application):
        return psycopg.connect(port="5000", application_name=application)

    with connect("setup") as setup:
        setup.execute("CREATE TABLE results (line text)")
    real = postgres_transactions(connect, lambda: None)
    with simulated("postgres") as pause:
        assert postgres_transactions(connect_simulated, pause) == real
    assert dict(real)["a commit again"] == "UndefinedObject"
