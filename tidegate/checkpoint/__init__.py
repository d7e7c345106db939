"""The protocol of checkpoints: facts in, decisions out; no threads, no I/O."""
