"""Event time: timestamps of records, and the watermarks derived from them."""
