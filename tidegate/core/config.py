"""All settings of a job as one value, parsed from the user's keys and values.

Later settings override earlier ones: defaults, then the `Configuration` of the environment, then
the program's calls (`set_parallelism`, `enable_checkpointing`, ...).
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, get_type_hints

from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.errors import ConfigError
from tidegate.core.options import Option, options_of
from tidegate.core.rest_settings import RestSettings
from tidegate.core.setting_groups import (
    EngineSettings,
    PipelineSettings,
    RestartSettings,
    SparkSettings,
    StateSettings,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    checkpointing: CheckpointSettings = field(default_factory=CheckpointSettings)
    state: StateSettings = field(default_factory=StateSettings)
    restart: RestartSettings = field(default_factory=RestartSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    rest: RestSettings = field(default_factory=RestSettings)
    spark_conf: dict[str, str] = field(default_factory=dict)
    """Spark's own settings, the keys that begin with "spark."."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Settings:
        """Parse a configuration.

        Raises:
            ConfigError: a key is unknown, or a value is invalid.
        """
        parsed: dict[str, Any] = {}
        spark_conf: dict[str, str] = {}
        for key, value in values.items():
            if key.startswith("spark."):
                spark_conf[key] = str(value)
            elif (found := find_option(key, value)) is not None:
                parsed[found.key] = found.parse(value, key)
        groups = {
            name: group(
                **{
                    attribute: parsed[found.key]
                    for attribute, found in options_of(group).items()
                    if found.key in parsed
                }
            )
            for name, group in GROUPS.items()
        }
        return cls(**groups, spark_conf=spark_conf)

    def as_mapping(self) -> dict[str, Any]:
        """Typed values by key, including the program's own job parameters."""
        values: dict[str, Any] = dict(self.spark_conf)
        for name, group in GROUPS.items():
            for attribute, found in options_of(group).items():
                values[found.key] = getattr(getattr(self, name), attribute)
        return {**values, **self.pipeline.job_parameters}


GROUPS: dict[str, type[Any]] = {
    name: kind for name, kind in get_type_hints(Settings).items() if name != "spark_conf"
}
"""The fields of `Settings` that are groups of options."""
OPTIONS: dict[str, Option] = {
    found.key: found for group in GROUPS.values() for found in options_of(group).values()
}
_SPELLINGS: dict[str, Option] = {
    key.lower(): found for found in OPTIONS.values() for key in (found.key, *found.older_keys)
}


def find_option(key: str, value: object = None) -> Option | None:
    """The option of a key in its current or an older spelling; None if it has no effect here.

    Raises:
        ConfigError: the key is unknown; the message suggests the nearest known one.
    """
    lowered = key.strip().lower()
    if lowered in _SPELLINGS:
        return _SPELLINGS[lowered]
    if (reason := why_without_effect(lowered)) is not None:
        _log.warning("%s has no effect in Tidegate: %s", key, reason)
        return None
    near = difflib.get_close_matches(lowered, _SPELLINGS, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else "docs/configuration.md lists all settings"
    raise ConfigError(key, value, f"there is no such setting; {advice}")


# --- settings of Flink without a meaning here -----------------------------------------------------

_PLACEHOLDER = re.compile(r"<[^>]+>")
REASONS: dict[str, str] = {
    "execution.batch.": "a batch job runs as a stream that ends",
    "execution.checkpointing.": "checkpoints have no such option in Tidegate",
    "high-availability": "use tidegate run --supervise to restart the driver",
    "jobmanager.memory.": "the driver's memory is set by tidegate.spark.driver-memory",
    "jobmanager.": "the JobManager is the driver process",
    "kubernetes.": "Spark's master decides where processes run",
    "metrics.": "metrics are served at /metrics for Prometheus",
    "pekko.": "driver and slots use their own protocol",
    "pipeline.classpaths": "no Java code runs in slots",
    "pipeline.jars": "no Java code runs in slots",
    "python.client.executable": "slots run the driver's Python",
    "python.executable": "slots run the driver's Python",
    "python.execution-mode": "functions always run in the slot's own Python process",
    "python.fn-execution.": "there is no Java process next to the Python process",
    "rest.": "the REST API is set by tidegate.rest.*",
    "security.": "Spark's own settings secure its cluster",
    "sql-client.": "use Spark SQL",
    "state.backend.rocksdb.": "rocksdict does not offer this option",
    "table.": "the Table API is not supported: use Spark SQL",
    "taskmanager.memory.": "a slot's memory is that of its Python process",
    "taskmanager.numberoftaskslots": "Spark decides how many tasks run at once",
    "taskmanager.": "slots are tasks of Spark",
    "web.": "the REST API is set by tidegate.rest.*",
    "yarn.": "Spark's master decides where processes run",
}
"""Why keys with this prefix have no effect; the longest matching prefix counts."""
_ANY_REASON = "Tidegate has no counterpart for it"


@cache
def flink_keys() -> frozenset[str]:
    """All such keys, in lower case; parts in angle brackets stand for user-defined names."""
    text = files("tidegate.core").joinpath("flink_keys.txt").read_text(encoding="utf-8")
    return frozenset(text.lower().split())


def why_without_effect(key: str) -> str | None:
    """Why a lower-case key of Flink has no effect; None for other keys."""
    is_known = (
        key in flink_keys()
        or key.startswith(_WHOLE_GROUPS)
        or any(pattern.fullmatch(key) for pattern in _patterns())
    )
    if not is_known:
        return None
    prefixes = [prefix for prefix in REASONS if key.startswith(prefix)]
    return REASONS[max(prefixes, key=len)] if prefixes else _ANY_REASON


_WHOLE_GROUPS = ("python.fn-execution.", "taskmanager.memory.", "jobmanager.memory.")
"""Their keys differ between versions of Flink."""


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(
        re.compile(".+".join(map(re.escape, _PLACEHOLDER.split(key))))
        for key in flink_keys()
        if "<" in key
    )
