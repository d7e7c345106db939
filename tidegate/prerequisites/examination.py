"""All checks, in the order in which they are worth reading."""

from tidegate.prerequisites.check import Check
from tidegate.prerequisites.java import check_java
from tidegate.prerequisites.machine import (
    check_cores,
    check_host_name,
    check_loopback,
    check_memory,
    check_temporary_directory,
    check_unix_sockets,
)
from tidegate.prerequisites.packages import (
    EXTRAS,
    REQUIREMENTS,
    check_extra,
    check_package,
    check_python,
)
from tidegate.prerequisites.spark_settings import (
    check_spark_connect,
    check_spark_home,
    check_worker_python,
)


def examine() -> list[Check]:
    """Look at everything Tidegate needs; takes as long as starting a Java."""
    return [
        check_python(),
        check_java(),
        *map(check_package, REQUIREMENTS),
        check_spark_home(),
        check_spark_connect(),
        check_worker_python(),
        check_cores(),
        check_memory(),
        check_temporary_directory(),
        check_loopback(),
        check_host_name(),
        check_unix_sockets(),
        *(check_extra(extra, names) for extra, names in EXTRAS.items()),
    ]
