"""What the log says when subtasks change their state."""

import logging

import pytest

from tidegate.common import RestartStrategies
from tidegate.core.errors import UserFunctionError
from tidegate.testing.environments import mini_environment


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="tidegate.driver.task_log")
    return lambda: [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "tidegate.driver.task_log"
    ]


def failing(restarts):
    env = mini_environment(parallelism=2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))
    numbers = env.from_collection([1]).map(lambda n: n / 0).name("Divide").set_parallelism(1)
    numbers.rebalance().map(lambda n: n).name("Show").print()
    return env


def test_every_subtask_of_a_job_that_ends(lines):
    env = mini_environment(parallelism=2)
    env.from_sequence(1, 2).map(lambda n: n).name("Map").print()
    env.execute()
    for subtask in ("(1/2)", "(2/2)"):
        name = f"Sequence Source -> Map -> Print to Std. Out {subtask}"
        assert [message for _, message in lines() if message.startswith(name)] == [
            f"{name} switched from CREATED to DEPLOYING",
            f"{name} switched from DEPLOYING to RUNNING",
            f"{name} switched from RUNNING to FINISHED",
        ]


def test_the_subtask_that_failed_and_those_that_were_cancelled_with_it(lines):
    with pytest.raises(UserFunctionError):
        failing(restarts=1).execute()
    failed = [message for level, message in lines() if level == "WARNING"]
    name = "Collection Source -> Divide (1/1)"
    cause = "ZeroDivisionError: division by zero"
    assert failed == [f"{name} switched from RUNNING to FAILED with failure cause: {cause}"] * 2
    canceled = [message for _, message in lines() if message.endswith("RUNNING to CANCELED")]
    assert len(canceled) == 4
    assert set(canceled) == {
        f"Show -> Print to Std. Out ({n}/2) switched from RUNNING to CANCELED" for n in (1, 2)
    }
