"""Sinks that have something to do in the driver too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class DriverSide(ABC):
    """The part of a sink that stays in the driver and hears what its committers deliver.

    Committers call `WriterContext.deliver(collector, batch)`; the records arrive here.
    """

    collector: str
    """The name under which they deliver."""

    @abstractmethod
    def before_start(self) -> None:
        """The job is about to be sent to the slots; what this raises ends it."""

    @abstractmethod
    def delivered(self, record: Any) -> None:
        """A record came. Called by a thread of its own, in the order of arrival."""

    def ended(self) -> None:
        """No more will come, however the job has ended; its result waits for this."""
