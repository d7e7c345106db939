"""`durable()`: a log before a source that cannot replay."""
