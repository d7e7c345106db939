import pickle
from datetime import timedelta

import pytest

from tidegate.core.config import (
    GROUPS,
    OPTIONS,
    Settings,
    find_option,
    flink_keys,
    why_without_effect,
)
from tidegate.core.errors import ConfigError
from tidegate.core.modes import (
    CheckpointingMode,
    RestartStrategyType,
    RuntimeExecutionMode,
    StateBackendType,
)
from tidegate.core.options import options_of


def test_the_older_spellings_of_flink_1_x_are_understood():
    settings = Settings.of(
        {
            "restart-strategy": "fixed-delay",
            "Restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "10s",
            "state.backend": "rocksdb",
            "state.checkpoints.dir": "s3://bucket/checkpoints",
        }
    )
    assert settings.restart.strategy is RestartStrategyType.FIXED_DELAY
    assert settings.restart.fixed_delay_attempts == 3
    assert settings.restart.fixed_delay == timedelta(seconds=10)
    assert settings.state.backend is StateBackendType.ROCKSDB
    assert settings.checkpointing.directory == "s3://bucket/checkpoints"


def test_a_failure_rate_reads_as_the_configuration_file_of_flink_writes_it():
    settings = Settings.of(
        {
            "restart-strategy": "failure-rate",
            "restart-strategy.failure-rate.max-failures-per-interval": "3",
            "restart-strategy.failure-rate.failure-rate-interval": "5 min",
            "restart-strategy.failure-rate.delay": "5 s",
        }
    )
    assert settings.restart.strategy is RestartStrategyType.FAILURE_RATE
    assert settings.restart.failure_rate_max == 3
    assert settings.restart.failure_rate_interval == timedelta(minutes=5)
    assert settings.restart.failure_rate_delay == timedelta(seconds=5)


def test_typed_values_and_text_mean_the_same():
    typed = Settings.of(
        {
            "execution.checkpointing.interval": timedelta(seconds=30),
            "execution.checkpointing.mode": CheckpointingMode.AT_LEAST_ONCE,
            "execution.runtime-mode": RuntimeExecutionMode.BATCH,
            "parallelism.default": 3,
            "pipeline.operator-chaining.enabled": False,
            "pipeline.global-job-parameters": {"city": "Berlin"},
        }
    )
    text = Settings.of(
        {
            "execution.checkpointing.interval": "30 s",
            "execution.checkpointing.mode": "at_least_once",
            "execution.runtime-mode": "batch",
            "parallelism.default": "3",
            "pipeline.operator-chaining": "false",
            "pipeline.global-job-parameters": "city:Berlin",
        }
    )
    assert typed == text
    assert text.checkpointing.is_enabled


def test_without_any_key_checkpoints_are_off_and_the_defaults_are_flinks():
    settings = Settings.of({})
    assert settings == Settings()
    assert not settings.checkpointing.is_enabled
    assert settings.checkpointing.timeout == timedelta(minutes=10)
    assert settings.restart.backoff_multiplier == 1.5
    assert settings.state.backend is StateBackendType.HASHMAP


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("restart-strategy.fixed-delay.attemps", "restart-strategy.fixed-delay.attempts"),
        ("execution.checkpoint.interval", "execution.checkpointing.interval"),
        ("parallelism", "parallelism.default"),
        ("state.backends", "state.backend"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key, nearest):
    with pytest.raises(ConfigError) as refused:
        Settings.of({key: "5"})
    assert str(refused.value) == f"{key} = '5': there is no such setting; did you mean {nearest}?"


def test_a_key_that_resembles_nothing_is_refused_with_where_to_look():
    with pytest.raises(ConfigError, match=r"docs/configuration\.md lists all settings"):
        Settings.of({"zzz": 1})


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("parallelism.default", 0, "give a whole number from 1 to 32768"),
        ("parallelism.default", "many", "give a whole number from 1 to 32768"),
        ("parallelism.default", True, "give a whole number from 1 to 32768"),
        ("execution.checkpointing.interval", 0, "give a duration of at least 10 ms"),
        ("execution.checkpointing.interval", "-1 s", "give a duration of at least 10 ms"),
        ("execution.checkpointing.mode", "ONCE", "give one of EXACTLY_ONCE, AT_LEAST_ONCE"),
        ("state.backend.type", "disk", "give one of hashmap, rocksdb"),
        ("restart-strategy.exponential-delay.jitter-factor", 2, "give a number from 0.0 to 1.0"),
        ("pipeline.operator-chaining.enabled", "yes", "give true or false"),
        ("pipeline.global-job-parameters", "city", "give a dict, or text like"),
        ("pipeline.name", "", "give a non-empty text"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_what_to_give(key, value, advice):
    with pytest.raises(ConfigError, match=advice) as refused:
        Settings.of({key: value})
    assert str(refused.value).startswith(f"{key} = {value!r}: ")


def test_the_message_names_the_spelling_that_the_user_chose():
    with pytest.raises(ConfigError, match=r"^state\.backend = 'disk'"):
        Settings.of({"state.backend": "disk"})


def test_a_heartbeat_timeout_below_its_interval_is_refused():
    with pytest.raises(ConfigError, match=r"give more than the heartbeat\.interval"):
        Settings.of({"heartbeat.interval": "30 s", "heartbeat.timeout": "10 s"})


def test_settings_of_flink_without_meaning_here_are_accepted_with_a_word(caplog):
    assert find_option("python.fn-execution.bundle.size") is None
    assert find_option("taskmanager.numberOfTaskSlots") is None
    assert "python.fn-execution.bundle.size has no effect in Tidegate" in caplog.text
    assert Settings.of({"pipeline.jars": "file:///a.jar"}) == Settings()


def test_every_documented_key_of_flink_is_accepted_with_a_reason_or_a_meaning():
    assert len(flink_keys()) > 950
    for key in flink_keys():
        filled = key.replace("<", "").replace(">", "")
        option = find_option(filled)
        assert option is not None or why_without_effect(filled)


def test_one_line_of_the_log_says_that_a_setting_has_no_effect(caplog):
    Settings.of({"yarn.application.name": "mine"})
    (record,) = caplog.records
    assert record.getMessage() == (
        "yarn.application.name has no effect in Tidegate: "
        "Spark's master decides where processes run"
    )


def test_a_key_that_nobody_knows_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean parallelism\.default"):
        Settings.of({"paralelism.default": 3})


def test_sparks_own_settings_pass_through_as_text():
    assert Settings.of({"spark.executor.cores": 2}).spark_conf == {"spark.executor.cores": "2"}


def test_functions_see_typed_values_and_the_job_parameters_by_key():
    settings = Settings.of(
        {"pipeline.global-job-parameters": {"city": "Berlin"}, "heartbeat.interval": "1 s"}
    )
    mapping = settings.as_mapping()
    assert mapping["city"] == "Berlin"
    assert mapping["heartbeat.interval"] == timedelta(seconds=1)
    assert set(OPTIONS) <= set(mapping)


def test_settings_arrive_whole_in_another_process():
    settings = Settings.of({"parallelism.default": 2, "spark.app.id": "x"})
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize("key", OPTIONS)
def test_every_default_reads_back_from_its_own_text(key):
    option = OPTIONS[key]
    if option.default in (None, {}, ()):
        assert option.format(option.default) == ""
    else:
        assert option.parse(option.format(option.default)) == option.default


def test_no_key_is_known_twice_and_each_has_a_description():
    keys = [
        key
        for group in GROUPS.values()
        for option in options_of(group).values()
        for key in (option.key, *option.older_keys)
    ]
    assert len(keys) == len(set(keys))
    assert all(option.description.endswith(".") for option in OPTIONS.values())
