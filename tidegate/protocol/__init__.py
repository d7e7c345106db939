"""The protocol between driver and slots: events in, instructions out; no threads, I/O or Spark."""
