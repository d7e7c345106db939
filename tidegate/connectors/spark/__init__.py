"""Spark DataFrames, streaming queries and tables as sources and sinks."""
