"""What Tidegate requires of the machine, checked without starting Spark.

Imports only the standard library and ``tidegate.core``, so that a missing package is reported
rather than breaking the report.
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
