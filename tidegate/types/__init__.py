"""The types of records: type information, rows, and their representation as Arrow columns."""
