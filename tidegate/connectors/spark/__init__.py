"""DataFrames, streaming queries and tables of Spark at both ends of a job."""
