"""Stored state: writing and reading."""
