"""State as tables that Spark and others read."""
