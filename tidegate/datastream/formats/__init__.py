"""Rows as the text of messages."""
