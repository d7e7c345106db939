"""The documents of the REST API, and their schemas."""
