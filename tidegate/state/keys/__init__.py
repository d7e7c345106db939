"""Keys: their bytes, hashes, key groups, and the places of their state."""
