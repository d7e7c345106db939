"""PostgreSQL as a sink. Needs the extra `postgres`."""
