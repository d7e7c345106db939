"""Runs a job graph: the driver's side, the slots' side, and what lies between them."""
