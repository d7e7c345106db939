"""Settings from a file with Flink's name and format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidegate.core.errors import ConfigError, shorten

CONF_DIR_VARIABLES = ("TIDEGATE_CONF_DIR", "FLINK_CONF_DIR")
"""The first one that is set defines the directory."""
_FILES = ("config.yaml", "flink-conf.yaml")


def file_settings() -> dict[str, str]:
    """The settings in the file of the environment's directory; none if there is no directory.

    Raises:
        ConfigError: the directory has no such file, or the file cannot be read.
    """
    variable = next((name for name in CONF_DIR_VARIABLES if os.environ.get(name)), None)
    return {} if variable is None else read_conf_dir(Path(os.environ[variable]), variable)


def read_conf_dir(directory: Path, chosen_by: str) -> dict[str, str]:
    """The settings of `config.yaml`, or else of `flink-conf.yaml`, in a directory."""
    for name in _FILES:
        file = directory / name
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            return _nested(file, text) if name == "config.yaml" else dict(_flat(file, text))
    raise ConfigError(
        chosen_by, str(directory), f"the directory has neither {' nor '.join(_FILES)}"
    )


def _nested(file: Path, text: str) -> dict[str, str]:
    """YAML, in which the parts of a key may be nested."""
    import yaml

    try:
        document = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(str(file), "", f"this is not YAML: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(str(file), shorten(document), "write key: value")
    return dict(_leaves(document, ""))


def _leaves(level: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for part, value in level.items():
        key = f"{prefix}{part}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{key}.")
        elif isinstance(value, list):
            yield key, ";".join(map(str, value))
        elif value is not None:
            yield key, str(value).lower() if isinstance(value, bool) else str(value)


def _flat(file: Path, text: str) -> Iterator[tuple[str, str]]:
    """One `key: value` per line, as in Flink 1.x."""
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        key, separator, value = content.partition(": ")
        if not separator:
            raise ConfigError(f"{file}:{number}", content, "write key: value")
        yield key.strip(), value.strip()
