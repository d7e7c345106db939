import pytest

from tidegate.common import SimpleStringSchema
from tidegate.connectors.guarantee import DeliveryGuarantee
from tidegate.connectors.kafka.record_serialization import (
    KafkaRecordSerializationSchema,
    KafkaTopicSelector,
)
from tidegate.connectors.kafka.sink import KafkaSink
from tidegate.core.errors import ConfigError, UnencodableRecord
from tidegate.stream.batch import Batch

TEXT = SimpleStringSchema()


def message(value, key=None):
    return value, key, 0, None


def sent(schema, records):
    """What is sent to every topic, call by call."""
    calls = []
    schema.send(Batch.of_records(records), lambda topic, messages: calls.append((topic, messages)))
    return calls


def test_a_message_has_a_value_and_a_key_where_one_is_wanted():
    plain = KafkaRecordSerializationSchema.builder().set_topic("t")
    plain = plain.set_value_serialization_schema(TEXT)
    assert sent(plain.build(), ["a"]) == [("t", [message(b"a")])]
    keyed = plain.set_key_serialization_schema(lambda text: text.upper()).build()
    assert sent(keyed, ["a", "b"]) == [("t", [message(b"a", "A"), message(b"b", "B")])]


class ByLength(KafkaTopicSelector):
    def apply(self, data):
        return f"of-{len(data)}"


@pytest.mark.parametrize("selector", [ByLength(), ByLength().apply])
def test_messages_of_a_topic_keep_their_order(selector):
    builder = KafkaRecordSerializationSchema.builder().set_topic_selector(selector)
    schema = builder.set_value_serialization_schema(TEXT).build()
    assert sent(schema, ["a", "bb", "c"]) == [
        ("of-1", [message(b"a"), message(b"c")]),
        ("of-2", [message(b"bb")]),
    ]


def test_the_first_record_that_cannot_be_encoded_is_named_after_those_before_it_are_sent():
    schema = KafkaRecordSerializationSchema("t", lambda text: text.encode("ascii"))
    calls = []
    with pytest.raises(UnencodableRecord, match="the record 'ä' cannot be encoded: Unicode") as bad:
        schema.send(Batch.of_records(["a", "ä", "ö"]), lambda *call: calls.append(call))
    assert calls == [("t", [message(b"a")])]
    assert bad.value.suspects == range(1, 2)


def test_what_is_missing_is_named():
    builder = KafkaRecordSerializationSchema.builder()
    with pytest.raises(ConfigError, match="call set_topic"):
        builder.build()
    with pytest.raises(ConfigError, match="call set_value_serialization_schema"):
        builder.set_topic("t").build()
    with pytest.raises(ConfigError, match="call set_record_serializer"):
        KafkaSink.builder().set_bootstrap_servers("one:9092").build()


@pytest.mark.parametrize(
    ("guarantee", "why"),
    [
        (DeliveryGuarantee.NONE, "does not wait for acknowledgements"),
        (DeliveryGuarantee.AT_LEAST_ONCE, "repeats results after a failure"),
        (DeliveryGuarantee.EXACTLY_ONCE, "commits Kafka transactions with the checkpoint"),
    ],
)
def test_a_sink_says_how_often_its_messages_arrive(guarantee, why):
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers("one:9092")
        .set_delivery_guarantee(guarantee)
        .set_record_serializer(KafkaRecordSerializationSchema("t", TEXT))
        .build()
    )
    assert (sink.delivery().guarantee, sink.delivery().why) == (guarantee, why)
