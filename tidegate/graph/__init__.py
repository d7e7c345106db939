"""A job as plain data: the program, chains, and exchanges."""
