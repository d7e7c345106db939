"""Bytes by path."""
