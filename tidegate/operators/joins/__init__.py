"""Joins: of windows, and of records within an interval of time."""
