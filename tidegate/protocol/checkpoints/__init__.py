"""What becomes of every checkpoint, and what a restore takes over."""
