"""The life of every checkpoint, and what a restore takes from it."""
