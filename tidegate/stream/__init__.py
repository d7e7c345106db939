"""What flows between operators: batches of records, watermarks, barriers, end of input."""
