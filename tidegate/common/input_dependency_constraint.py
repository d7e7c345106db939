"""When Flink's scheduler starts a task: PyFlink's name, which only wraps a Java class."""

from tidegate.common.java_only import java_only

InputDependencyConstraint = java_only(
    "InputDependencyConstraint", "All operators of a pipeline run at once: omit it."
)

__all__ = ["InputDependencyConstraint"]
