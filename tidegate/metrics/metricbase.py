"""The same names as in `tidegate.metrics`, where PyFlink has them, too."""

from tidegate.operators.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
