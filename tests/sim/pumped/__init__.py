"""The exchange over an endless Spark job: code that blocks, its lines, and the pumps."""
