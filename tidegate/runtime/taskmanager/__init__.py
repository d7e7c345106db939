"""The side of a job that lives in long-running Spark tasks."""
