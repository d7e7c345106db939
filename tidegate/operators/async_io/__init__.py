"""Async I/O: coroutines that wait for other systems while records and barriers flow."""
