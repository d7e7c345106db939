"""What the REST API answers: documents and their schemas."""
