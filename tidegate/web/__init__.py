"""What a driver tells about its jobs, and takes orders by: the REST API and the job registry."""
