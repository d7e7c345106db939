"""Keyed state as columns."""
