"""Steps over one endless Spark job: pumps carry packets through Spark's streaming shuffle."""
