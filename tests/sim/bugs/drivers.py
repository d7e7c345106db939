"""Bugs of two drivers on one directory."""

from __future__ import annotations

from typing import Any

from tests.sim.bugs.planting import bug, instead, section
from tidegate.checkpoint.ownership import Ownership
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.ids import CheckpointId
from tidegate.driver.checkpoints.home import CheckpointHome
from tidegate.slot.pipeline_host import PipelineHost

section("start a rival", "storage is slow", "kill the driver", "put the driver to sleep")


def _published_unasked(original: Any) -> Any:
    def publish(self: Any, metadata: Any) -> Any:
        self.check_owned = lambda: None
        try:
            return original(self, metadata)
        finally:
            del self.check_owned

    return publish


def _published_asked_once(original: Any) -> Any:
    def publish(self: Any, metadata: Any) -> Any:
        self.check_owned()
        return _published_unasked(original)(self, metadata)

    return publish


def _listed_before_it_is_claimed(original: Any) -> Any:
    def claim(store: Any, job_name: str = "") -> Any:
        present = list(store.list())
        return original(store, job_name)[0], present

    return claim


bug(
    "nobody asks whose the directory is",
    (Ownership, "is_held", instead(True)),
)
bug(
    "a checkpoint is published without asking whose the directory is",
    (CheckpointStore, "publish", _published_unasked),
)
bug(
    "leftovers are deleted without asking whose they are",
    (CheckpointStore, "still_owned", instead(True)),
    (Ownership, "is_held", instead(True)),
)
bug(
    "a checkpoint id is used twice",
    (CheckpointHome, "next_id", lambda o: lambda self: CheckpointId(1)),
)
bug(
    "slots open without asking whose the directory is",
    (PipelineHost, "_check_owned", instead(None)),
)

section(
    "start a rival @ metadata is created",
    "storage is slow @ metadata is created",
    moments=(),
    delay=1,
    interval=300,
    faults=4,
)
bug(
    "nobody asks again after metadata was created",
    (CheckpointStore, "publish", _published_asked_once),
)
bug(
    "a directory is listed before it is claimed",
    (Ownership, "claim", _listed_before_it_is_claimed),
)
