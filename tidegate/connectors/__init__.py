"""Sources and sinks: their contracts, and those that come with Tidegate."""
