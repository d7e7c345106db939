"""`durable()`: a log for a source that cannot replay."""
