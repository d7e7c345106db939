"""Keyed state in RocksDB, with the keys in use in memory."""
