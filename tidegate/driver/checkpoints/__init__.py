"""The checkpoints of one job in the driver."""
