"""What is logged in a slot, on its way to the log of the driver."""

import logging
import threading

import pytest

from tidegate.driver.function_logs import log_again
from tidegate.slot.function_logs import LogForwarder, thread_named


@pytest.fixture
def logger():
    logger = logging.getLogger("users.module")
    before = logger.handlers[:], logger.level, logger.propagate
    yield logger
    logger.handlers[:], logger.level, logger.propagate = before


def test_a_record_arrives_with_its_logger_level_subtask_and_traceback(logger, caplog):
    sent = []
    logger.addHandler(LogForwarder(sent.append))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    with thread_named("Map -> Filter (2/3)"):
        logger.info("saw %s", 5)
        try:
            raise ValueError("wrong")
        except ValueError:
            logger.exception("no")
    info, error = sent
    assert (info.logger, info.level, info.text) == ("users.module", logging.INFO, "saw 5")
    assert info.task == "Map -> Filter (2/3)"
    assert error.text.endswith("ValueError: wrong")
    logger.propagate = True
    logger.handlers.clear()
    with caplog.at_level(logging.INFO):
        log_again(info)
    (record,) = caplog.records
    assert record.getMessage() == "Map -> Filter (2/3): saw 5"
    assert (record.name, record.created, record.threadName) == (
        "users.module",
        info.created,
        info.task,
    )


def test_what_sending_logs_is_not_sent(logger):
    sent = []

    def send(message):
        sent.append(message)
        logger.warning("sending")

    logger.addHandler(LogForwarder(send))
    logger.warning("once")
    assert [message.text for message in sent] == ["once"]


def test_where_nobody_has_set_up_logging_the_line_is_printed(logger, capsys):
    sent = []
    logger.addHandler(LogForwarder(sent.append))
    logger.propagate = False
    logger.warning("look")
    logger.handlers.clear()
    log_again(sent[0])
    assert (
        capsys.readouterr().err == f"WARNING users.module {threading.current_thread().name}: look\n"
    )
