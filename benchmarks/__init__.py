"""Tidegate beside what a user would take instead: one run, one machine, the same data."""
