import pytest

pytest.importorskip("kafka")

from kafka import errors as kafka_errors

from tidegate.connectors.kafka.transaction_log import FirstRecord, TransactionFate, fate_in_log
from tidegate.core.errors import KafkaFailed, KafkaRefused


class Refusing:
    """A client whose requests all fail with the same error."""

    brokers = "broker:9092"
    patience_seconds = 1.0

    def __init__(self, error):
        self.error = error

    def ask(self, doing, request):
        raise self.error


def fate(error):
    return fate_in_log(Refusing(error), 7, 0, FirstRecord("orders", 0, 5))


@pytest.mark.parametrize(
    "error", [kafka_errors.OffsetOutOfRangeError(), KafkaRefused("broker:9092", "no access")]
)
def test_the_fate_of_records_that_are_deleted_or_forbidden_is_unknown(error):
    assert fate(error) is TransactionFate.UNKNOWN


@pytest.mark.parametrize("error", [kafka_errors.UnknownError, kafka_errors.CorruptRecordError])
def test_the_fate_is_asked_for_again_after_other_errors_of_the_brokers(error):
    with pytest.raises(
        KafkaFailed, match=rf"reading what became of a transaction.*{error.__name__}"
    ):
        fate(error())
