"""Joins of typed streams on whole columns."""
