"""Settings from Flink's configuration files."""

import pytest

from tidegate.core.errors import ConfigError
from tidegate.datastream.execution.config_file import file_settings, read_conf_dir
from tidegate.testing.environments import mini_environment


def test_the_parts_of_a_key_may_be_levels_in_yaml(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "parallelism.default: 3\n"
        "execution:\n  checkpointing:\n    interval: 5 s\n    unaligned: true\n"
        "python.files: [a.py, b.py]\n"
        "taskmanager:\n  bind-host: localhost\n"
    )
    assert read_conf_dir(tmp_path, "x") == {
        "parallelism.default": "3",
        "execution.checkpointing.interval": "5 s",
        "execution.checkpointing.unaligned": "true",
        "python.files": "a.py;b.py",
        "taskmanager.bind-host": "localhost",
    }


def test_the_older_file_has_a_key_and_a_value_per_line(tmp_path):
    (tmp_path / "flink-conf.yaml").write_text(
        "# comment\nparallelism.default: 3 # cores\n\nstate.checkpoints.dir: s3://a/b\n"
    )
    assert read_conf_dir(tmp_path, "x") == {
        "parallelism.default": "3",
        "state.checkpoints.dir": "s3://a/b",
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.yaml", "a: [", "this is not YAML"),
        ("config.yaml", "- a", "write key: value"),
        ("flink-conf.yaml", "key", r"flink-conf.yaml:1 = 'key': write key: value"),
        ("other.yaml", "", "neither config.yaml nor flink-conf.yaml"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_conf_dir(tmp_path, "--conf-dir")


@pytest.mark.parametrize("variable", ["TIDEGATE_CONF_DIR", "FLINK_CONF_DIR"])
def test_the_program_wins_over_the_file_of_the_environment(tmp_path, monkeypatch, variable):
    (tmp_path / "config.yaml").write_text("parallelism.default: 3\npipeline.max-parallelism: 9\n")
    monkeypatch.setenv(variable, str(tmp_path))
    env = mini_environment({"pipeline.max-parallelism": 5})
    assert env.get_parallelism() == 3
    assert env.get_max_parallelism() == 5


def test_without_a_directory_there_is_no_file(monkeypatch):
    monkeypatch.delenv("TIDEGATE_CONF_DIR", raising=False)
    monkeypatch.delenv("FLINK_CONF_DIR", raising=False)
    assert file_settings() == {}
