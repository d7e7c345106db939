"""Keys: their bytes, hashes, groups, and the rows where their state stands."""
