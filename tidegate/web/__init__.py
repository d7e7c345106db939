"""The REST API and dashboard of a driver, and the job registry."""
