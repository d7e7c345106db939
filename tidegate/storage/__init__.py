"""Byte storage by path."""
