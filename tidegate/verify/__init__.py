"""Proves exactly-once by killing processes: compares the sink of killed and undisturbed runs."""
