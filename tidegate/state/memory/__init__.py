"""Keyed state as Python objects in memory."""
