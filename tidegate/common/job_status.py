"""`JobStatus`: the states of a job."""

from tidegate.protocol.job_status import JobStatus

__all__ = ["JobStatus"]
