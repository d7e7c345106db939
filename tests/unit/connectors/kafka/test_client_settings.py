import ssl

import pytest

from tidegate.connectors.kafka.client_settings import connection_settings, librdkafka_settings
from tidegate.connectors.kafka.producer_settings import ProducerSettings
from tidegate.core.errors import ConfigError

SERVERS = {"bootstrap.servers": "one:9092,two:9092"}


def test_settings_that_only_java_has_are_dropped_or_renamed():
    java = {"key.serializer": "org…StringSerializer", "max.request.size": 5, "linger.ms": 7}
    assert librdkafka_settings(java) == {"message.max.bytes": 5, "linger.ms": 7}


def test_the_login_of_a_java_client_is_understood():
    jaas = 'org…PlainLoginModule required username="me" password="a b=\\"c";'
    found = librdkafka_settings({"sasl.jaas.config": jaas})
    assert found == {"sasl.username": "me", "sasl.password": 'a b="c'}


def test_a_second_client_connects_to_the_same_brokers():
    found = connection_settings(SERVERS)
    assert found["bootstrap_servers"] == ["one:9092", "two:9092"]
    assert found["security_protocol"] == "PLAINTEXT"


def test_a_second_client_logs_in_with_the_same_name():
    login = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "secret",
    }
    found = connection_settings({**SERVERS, **login})
    assert found["security_protocol"] == "SASL_PLAINTEXT"
    assert found["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("me", "secret")


def test_a_login_that_the_second_client_does_not_know_is_refused():
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match="transactions can be committed with PLAIN, SCRAM"):
        connection_settings({**SERVERS, **login})


def test_encrypted_connections_check_the_broker_unless_told_otherwise():
    encrypted = {**SERVERS, "security.protocol": "SSL"}
    checked = connection_settings(encrypted)["ssl_context"]
    assert checked.check_hostname and checked.verify_mode is ssl.CERT_REQUIRED
    unnamed = {**encrypted, "ssl.endpoint.identification.algorithm": "none"}
    assert not connection_settings(unnamed)["ssl_context"].check_hostname
    unchecked = {**encrypted, "enable.ssl.certificate.verification": "false"}
    assert connection_settings(unchecked)["ssl_context"].verify_mode is ssl.CERT_NONE


def test_a_certificate_that_is_not_there_is_named():
    missing = {**SERVERS, "security.protocol": "SSL", "ssl.ca.location": "/nowhere.pem"}
    with pytest.raises(ConfigError, match="give files that every slot can read"):
        connection_settings(missing)


def test_a_producer_is_not_told_what_is_a_consumers():
    found = ProducerSettings.of({**SERVERS, "group.id": "readers", "acks": "all"})
    assert found.client == {**SERVERS, "acks": "all"}


def test_both_names_of_the_delivery_timeout_are_one():
    found = ProducerSettings.of({**SERVERS, "message.timeout.ms": "5000"})
    assert found.client["delivery.timeout.ms"] == 5000


def test_patience_is_ours_and_not_the_clients():
    found = ProducerSettings.of({**SERVERS, "default.api.timeout.ms": "1500"})
    assert (found.patience_seconds, found.client) == (1.5, SERVERS)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "bootstrap.servers = None: give the brokers' addresses"),
        ({**SERVERS, "transactional.id": "x"}, "the sink creates its own ids: set their prefix"),
        ({**SERVERS, "transaction.timeout.ms": "soon"}, "give a whole number of milliseconds"),
        ({**SERVERS, "delivery.timeout.ms": 0}, "give a whole number of milliseconds, above zero"),
    ],
)
def test_nonsense_is_refused(properties, message):
    with pytest.raises(ConfigError, match=message):
        ProducerSettings.of(properties)
