"""Checkpoints and savepoints in their directories: metadata, layout, ownership, stores."""
