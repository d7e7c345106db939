"""Windows of typed streams on whole columns."""
