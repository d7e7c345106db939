"""The protocol of driver and slots: events in, instructions out; no threads, no I/O, no Spark."""
