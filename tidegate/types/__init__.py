"""What a stream's records are: type information, rows, and their form as Arrow columns."""
