import copy
from datetime import timedelta

import pytest

from tidegate.common import ConfigOptions, Configuration
from tidegate.core.errors import ConfigError
from tidegate.core.modes import RuntimeExecutionMode
from tidegate.testing.environments import mini_environment


def test_values_are_read_back_in_the_type_they_are_asked_for():
    configuration = (
        Configuration()
        .set_string("text", "10")
        .set_integer("whole", 3)
        .set_float("part", 0.5)
        .set_boolean("flag", True)
        .set_bytearray("raw", bytearray(b"ab"))
    )
    assert configuration.get_string("whole", "") == "3"
    assert configuration.get_integer("text", 0) == 10
    assert configuration.get_float("part", 0.0) == 0.5
    assert configuration.get_boolean("flag", False) is True
    assert configuration.get_bytearray("raw", bytearray()) == bytearray(b"ab")
    assert configuration.get_string("absent", "default") == "default"
    assert configuration.get_integer("absent", 7) == 7


def test_a_value_of_another_type_is_refused_by_its_key():
    with pytest.raises(ConfigError, match=r"^size = 'large': this is not a whole number$"):
        Configuration().set_string("size", "large").get_integer("size", 1)


def test_typed_values_become_the_text_of_a_configuration_file():
    configuration = Configuration(
        {
            "execution.checkpointing.interval": timedelta(minutes=5),
            "execution.runtime-mode": RuntimeExecutionMode.BATCH,
            "pipeline.operator-chaining.enabled": False,
            "pipeline.global-job-parameters": {"a": 1, "b": 2},
            "python.files": ["x.py", "y.zip"],
        }
    )
    assert configuration.to_dict() == {
        "execution.checkpointing.interval": "5 min",
        "execution.runtime-mode": "BATCH",
        "pipeline.operator-chaining.enabled": "false",
        "pipeline.global-job-parameters": "a:1,b:2",
        "python.files": "x.py;y.zip",
    }


def test_configurations_are_copied_merged_and_compared_by_value():
    one = Configuration.from_dict({"a": 1})
    other = Configuration(one).set("b", 2)
    assert one != other
    assert copy.deepcopy(other) == other
    assert hash(copy.deepcopy(other)) == hash(other)
    one.add_all(other)
    assert one == other
    assert Configuration().add_all(other, prefix="x.").key_set() == {"x.a", "x.b"}


def test_removing_a_key_tells_whether_it_was_there():
    configuration = Configuration({"a": 1})
    assert configuration.contains_key("a")
    assert configuration.remove_config("a")
    assert not configuration.remove_config("a")
    target: dict[str, str] = {}
    configuration.set("b", 2).add_all_to_dict(target)
    assert target == {"b": "2"}


def test_options_of_the_users_own_have_a_type_and_a_default():
    retries = ConfigOptions.key("my.retries").int_type().default_value(3)
    name = ConfigOptions.key("my.name").string_type().no_default_value()
    configuration = Configuration()
    assert configuration.get(retries) == 3
    assert configuration.get(name) is None
    assert configuration.set(retries, "5").get(retries) == 5
    assert ConfigOptions.key("f").boolean_type().default_value(True).default is True
    assert ConfigOptions.key("d").double_type().default_value(0.5).kind.parse("1.5") == 1.5


def test_a_known_setting_that_is_not_set_has_its_default():
    assert Configuration().get("execution.checkpointing.timeout") == timedelta(minutes=10)
    assert Configuration.parse_list_value("a; b;") == ["a", "b"]
    assert Configuration.parse_list_value("") == []


def test_what_only_java_needs_is_accepted():
    config = mini_environment().get_config()
    config.disable_closure_cleaner().enable_force_kryo().disable_force_avro()
    config.disable_generic_types().enable_auto_generated_uids().set_use_snapshot_compression(True)
    config.set_latency_tracking_interval(5).set_task_cancellation_interval(100)
    assert config.is_object_reuse_enabled() is False
