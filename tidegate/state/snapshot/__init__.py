"""Stored state: how it is written, pointed to and read."""
