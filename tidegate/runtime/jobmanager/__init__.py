"""The driver's side of a job."""
