import json
from datetime import timedelta

import pytest

from tidegate.common import Configuration, RestartStrategies, Types
from tidegate.core.errors import ConfigError, GraphError
from tidegate.core.modes import RestartStrategyType, StateBackendType
from tidegate.datastream import (
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    PredefinedOptions,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from tidegate.datastream.connectors import DataGeneratorSource
from tidegate.testing.environments import mini_environment


@pytest.fixture
def env():
    return mini_environment(parallelism=2)


def settings_of(env):
    return env._configuration.settings()


def test_calls_of_the_program_override_the_configuration():
    env = mini_environment({"parallelism.default": 4, "pipeline.max-parallelism": 64})
    assert (env.get_parallelism(), env.get_max_parallelism()) == (4, 64)
    env.set_parallelism(3).set_max_parallelism(32)
    assert (env.get_parallelism(), env.get_max_parallelism()) == (3, 32)


def test_a_call_overrides_an_older_spelling_of_the_same_setting():
    env = mini_environment(Configuration({"restart-strategy": "none", "state.backend": "rocksdb"}))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10_000))
    env.set_state_backend(HashMapStateBackend())
    settings = settings_of(env)
    assert settings.restart.strategy is RestartStrategyType.FIXED_DELAY
    assert settings.restart.fixed_delay_attempts == 3
    assert settings.restart.fixed_delay == timedelta(seconds=10)
    assert settings.state.backend is StateBackendType.HASHMAP


def test_an_unknown_key_is_refused_when_the_environment_is_made():
    with pytest.raises(ConfigError, match=r"did you mean parallelism\.default\?"):
        StreamExecutionEnvironment.get_execution_environment({"paralelism.default": 4})


def test_without_a_parallelism_the_executor_decides(env):
    assert env.get_parallelism() == 2
    assert env.get_max_parallelism() == -1


@pytest.mark.parametrize("parallelism", [0, -1, 2.5, "x"])
def test_a_parallelism_that_makes_no_sense_is_refused(env, parallelism):
    with pytest.raises(ConfigError, match="give a whole number from 1 to 32768"):
        env.set_parallelism(parallelism)


def test_falling_back_forgets_a_restart_strategy(env):
    env.set_restart_strategy(RestartStrategies.no_restart())
    assert settings_of(env).restart.strategy is RestartStrategyType.NONE
    env.set_restart_strategy(RestartStrategies.fall_back_restart())
    assert settings_of(env).restart.strategy is None


def test_checkpointing_is_off_until_it_is_enabled(env):
    config = env.get_checkpoint_config()
    assert not config.is_checkpointing_enabled()
    assert env.get_checkpoint_interval() == -1
    env.enable_checkpointing(30 * 1000)
    assert config.is_checkpointing_enabled()
    assert env.get_checkpoint_interval() == 30_000
    assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    env.enable_checkpointing(timedelta(seconds=1), CheckpointingMode.AT_LEAST_ONCE)
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE


@pytest.mark.parametrize("interval", [0, -5, "soon"])
def test_an_interval_that_makes_no_sense_is_refused(env, interval):
    with pytest.raises(ConfigError, match=r"execution\.checkpointing\.interval"):
        env.enable_checkpointing(interval)


def test_the_checkpoint_config_is_a_view_of_the_settings(env):
    config = (
        env.get_checkpoint_config()
        .set_checkpoint_interval("10 s")
        .set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
        .set_checkpoint_timeout(60_000)
        .set_min_pause_between_checkpoints(500)
        .set_max_concurrent_checkpoints(2)
        .set_tolerable_checkpoint_failure_number(3)
        .enable_unaligned_checkpoints()
        .set_force_unaligned_checkpoints()
        .set_aligned_checkpoint_timeout("2 s")
        .enable_externalized_checkpoints(ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION)
    )
    assert config.get_checkpoint_interval() == 10_000
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert config.get_checkpoint_timeout() == 60_000
    assert config.get_min_pause_between_checkpoints() == 500
    assert config.get_max_concurrent_checkpoints() == 2
    assert config.get_tolerable_checkpoint_failure_number() == 3
    assert config.is_unaligned_checkpoints_enabled()
    assert config.is_force_unaligned_checkpoints()
    assert config.get_aligned_checkpoint_timeout() == timedelta(seconds=2)
    assert config.is_externalized_checkpoints_enabled()
    found = settings_of(env).checkpointing
    assert found.retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    assert found.timeout == timedelta(minutes=1)
    assert found.tolerable_failures == 3
    config.disable_unaligned_checkpoints().set_fail_on_checkpointing_errors(True)
    assert not config.is_unaligned_checkpoints_enabled()
    assert config.is_fail_on_checkpointing_errors()


def test_the_last_checkpoint_storage_that_is_set_wins(env):
    config = env.get_checkpoint_config()
    assert config.get_checkpoint_storage() is None
    config.set_checkpoint_storage_dir("file:///checkpoints")
    assert config.get_checkpoint_storage() == FileSystemCheckpointStorage(
        "file:///checkpoints", 20 << 10
    )
    config.set_checkpoint_storage(JobManagerCheckpointStorage(max_state_size=1024))
    assert config.get_checkpoint_storage() == JobManagerCheckpointStorage(None, 1024)
    assert settings_of(env).checkpointing.directory is None


def test_a_file_system_storage_without_a_directory_is_refused(env):
    env.configure({"execution.checkpointing.storage": "filesystem"})
    with pytest.raises(ConfigError, match=r"'filesystem': set execution.checkpointing.dir"):
        settings_of(env)
    with pytest.raises(ConfigError, match=r"execution.checkpointing.dir = None"):
        env.get_checkpoint_config().set_checkpoint_storage(FileSystemCheckpointStorage(None))


@pytest.mark.parametrize(
    ("change", "key", "advice"),
    [
        (
            lambda env, config: config.set_checkpoint_interval(0),
            "execution.checkpointing.interval",
            "give a duration of at least 10 ms",
        ),
        (
            lambda env, config: config.set_checkpoint_timeout(5),
            "execution.checkpointing.timeout",
            "give a duration of at least 10 ms",
        ),
        (
            lambda env, config: config.set_min_pause_between_checkpoints(-1),
            "execution.checkpointing.min-pause",
            "give a duration of at least 0 ms",
        ),
        (
            lambda env, config: config.set_max_concurrent_checkpoints(0),
            "execution.checkpointing.max-concurrent-checkpoints",
            "give a whole number of at least 1",
        ),
        (
            lambda env, config: config.set_tolerable_checkpoint_failure_number(-1),
            "execution.checkpointing.tolerable-failed-checkpoints",
            "give a whole number of at least 0",
        ),
        (
            lambda env, config: config.set_checkpoint_storage_dir(" "),
            "execution.checkpointing.dir",
            "give a non-empty text",
        ),
        (
            lambda env, config: env.set_max_parallelism(32769),
            "pipeline.max-parallelism",
            "give a whole number from 1 to 32768",
        ),
        (
            lambda env, config: env.set_max_parallelism(0),
            "pipeline.max-parallelism",
            "give a whole number from 1 to 32768",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_set(env, change, key, advice):
    with pytest.raises(ConfigError) as refusal:
        change(env, env.get_checkpoint_config())
    assert (refusal.value.args[0], refusal.value.args[2]) == (key, advice)


def test_incremental_checkpoints_are_the_users_choice(env):
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    assert not settings_of(env).checkpointing.incremental
    env.configure({"state.backend.incremental": "true"})
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    assert settings_of(env).checkpointing.incremental
    env.set_state_backend(EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=False))
    assert not settings_of(env).checkpointing.incremental


def test_predefined_options_of_rocksdb_are_accepted():
    backend = EmbeddedRocksDBStateBackend()
    assert backend.get_predefined_options() is PredefinedOptions.DEFAULT
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    assert backend == EmbeddedRocksDBStateBackend()


def test_state_backends_are_values_that_choose_settings(env):
    assert env.get_state_backend() == HashMapStateBackend()
    backend = EmbeddedRocksDBStateBackend(True)
    backend.set_db_storage_paths("/fast", "/faster")
    backend.set_number_of_transfer_threads(8)
    env.set_state_backend(backend)
    settings = settings_of(env)
    assert settings.state.backend is StateBackendType.ROCKSDB
    assert settings.state.rocksdb_directories == ("/fast", "/faster")
    assert settings.state.rocksdb_transfer_threads == 8
    assert settings.checkpointing.incremental
    assert env.get_state_backend() == backend


def test_the_execution_config_is_a_view_of_the_settings(env):
    config = env.get_config()
    config.set_parallelism(3).set_max_parallelism(30)
    config.set_restart_strategy(RestartStrategies.no_restart())
    config.set_global_job_parameters({"limit": 5})
    config.set_task_cancellation_timeout("3 s")
    assert (env.get_parallelism(), config.get_parallelism()) == (3, 3)
    assert config.get_max_parallelism() == 30
    assert config.get_restart_strategy() == RestartStrategies.no_restart()
    assert config.get_global_job_parameters() == {"limit": "5"}
    assert config.get_task_cancellation_timeout() == 3000
    assert not config.is_object_reuse_enabled()
    assert config.enable_object_reuse().is_object_reuse_enabled()
    assert settings_of(env).pipeline.object_reuse
    assert not config.disable_object_reuse().is_object_reuse_enabled()


def test_files_and_jars_add_up(env):
    env.add_python_file("a.py")
    env.add_python_file("b.zip")
    env.add_jars("file:///x.jar", "/y.jar")
    env.add_jars("/z.jar")
    settings = settings_of(env)
    assert settings.pipeline.python_files == ("a.py", "b.zip")
    assert settings.spark_conf == {"spark.jars": "/x.jar,/y.jar,/z.jar"}


def test_a_buffer_timeout_is_the_latency_target(env):
    env.configure({"execution.buffer-timeout.interval": "20 ms"})
    assert env.get_buffer_timeout() == 20
    env.set_buffer_timeout(2)
    assert env._configuration.get("tidegate.step.latency-target") == timedelta(milliseconds=2)
    env.set_buffer_timeout(-1)
    assert env._configuration.get("tidegate.step.latency-target") == timedelta(milliseconds=100)


@pytest.mark.parametrize("timeout", [2, -1])
def test_the_buffer_timeout_that_was_set_last_counts(env, timeout):
    env.set_buffer_timeout(timeout)
    env.configure({"execution.buffer-timeout.interval": "20 ms"})
    assert env.get_buffer_timeout() == 20


def test_buffer_timeouts_are_kept_and_checked(env):
    assert env.get_buffer_timeout() == 100
    assert env.set_buffer_timeout("1 s").get_buffer_timeout() == 1000
    assert env.set_buffer_timeout(-1).get_buffer_timeout() == -1
    with pytest.raises(ConfigError, match="give -1, 0 or more milliseconds"):
        env.set_buffer_timeout(-2)


def test_a_program_without_operators_is_refused(env):
    env.from_collection([1])
    with pytest.raises(GraphError, match="there is nothing to run"):
        env.execute()


def test_a_batch_job_with_a_source_that_never_ends_is_refused(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_source(DataGeneratorSource(str), source_name="numbers").print()
    with pytest.raises(GraphError, match="its source 'numbers' never ends"):
        env.execute()


def test_what_is_no_source_is_refused_with_what_to_call(env):
    with pytest.raises(TypeError, match=r"use from_collection\(\) for collections"):
        env.from_source([1, 2, 3])
    with pytest.raises(TypeError, match="expected a SourceFunction"):
        env.add_source([1, 2, 3])


def test_calls_that_make_no_sense_here_say_what_to_do_instead(env):
    with pytest.raises(AttributeError, match=r"configuration key spark\.archives"):
        env.add_python_archive("venv.tar.gz")
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        env.nonsense()
    assert not hasattr(env, "set_python_executable")


def test_the_plan_is_flinks_json(env):
    source = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    source.map(lambda pair: pair).set_description("as it is").rebalance().print("p").name("Out")
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert [(node["type"], node["pact"], node["parallelism"]) for node in nodes] == [
        ("Source: Collection Source", "Data Source", 1),
        ("Map", "Operator", 2),
        ("Sink: Out", "Data Sink", 2),
    ]
    assert nodes[1]["contents"] == "as it is"
    assert [node["predecessors"][0]["ship_strategy"] for node in nodes[1:]] == [
        "REBALANCE",
        "REBALANCE",
    ]
    assert nodes[2]["predecessors"][0]["id"] == nodes[1]["id"]


def test_asking_for_the_plan_leaves_the_program_as_it_is(env):
    env.from_collection([1]).print()
    assert env.get_execution_plan() == env.get_execution_plan()
