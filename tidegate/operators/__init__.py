"""Operators, which run inside a subtask. Independent of Spark."""
