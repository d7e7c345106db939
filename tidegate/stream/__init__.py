"""Stream elements: batches of records, watermarks, barriers, end of input."""
