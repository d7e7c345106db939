"""A job as plain data: what the user wrote, what is chained, what is exchanged."""
