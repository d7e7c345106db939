"""The outside world: contracts of sources and sinks, and the ones that come with Tidegate."""
