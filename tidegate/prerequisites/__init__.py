"""What Tidegate needs from the machine it runs on, checked without starting Spark.

Nothing here imports more than the standard library and ``tidegate.core``, so that a missing package
is reported instead of being the reason why the report fails.
"""

from tidegate.prerequisites.check import Check, Status
from tidegate.prerequisites.examination import examine
from tidegate.prerequisites.java import JavaInstallation, JavaOrigin, find_java, require_java

__all__ = [
    "Check",
    "JavaInstallation",
    "JavaOrigin",
    "Status",
    "examine",
    "find_java",
    "require_java",
]
