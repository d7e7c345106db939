"""Where event time comes from: timestamps of records, and the watermarks made of them."""
