"""Operators with two inputs: connected streams, and broadcast state."""
