"""The metrics of functions: `runtime_context.get_metrics_group()`."""

from tidegate.operators.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
