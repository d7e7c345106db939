"""Sources and sinks as operators."""
