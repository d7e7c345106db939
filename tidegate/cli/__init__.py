"""The ``tidegate`` command: parses, calls, prints."""
