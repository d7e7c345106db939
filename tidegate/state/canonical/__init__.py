"""State as tables for Spark and other readers."""
