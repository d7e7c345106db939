"""The last answers about an ended job, by path, in a file next to the registry."""

from __future__ import annotations

import gzip
import json
import os
import secrets
from pathlib import Path
from typing import Any

from tidegate.core.redaction import redacted_document
from tidegate.driver.job_handle import JobHandle
from tidegate.web.documents import checkpoints, config, exceptions, jobs, vertices
from tidegate.web.documents.checkpointing import checkpointing
from tidegate.web.documents.common import vertex_id
from tidegate.web.documents.diagnostics import dead_letters
from tidegate.web.documents.live import charts
from tidegate.web.forms import as_document
from tidegate.web.hub import Watched
from tidegate.web.live.history import COARSE
from tidegate.web.registry import directories

_FOLDER = "archive"
_DETAILED = 10
"""How many checkpoints are kept with all their subtasks."""


def answers_of(job: JobHandle, watched: Watched) -> dict[str, Any]:
    """The answers for the paths of a job, by path."""
    path, rates = f"/jobs/{job.job_id}", watched.meter.rates()
    found: dict[str, Any] = {
        path: jobs.job_details(job, rates),
        f"{path}/plan": jobs.plan(job),
        f"{path}/config": config.job_config(job),
        f"{path}/accumulators": jobs.accumulators(job),
        f"{path}/exceptions": exceptions.exceptions(job, len(job.chronicle.failures)),
        f"{path}/checkpoints": checkpoints.statistics(job),
        f"{path}/checkpoints/config": checkpointing(job.settings),
        f"/tidegate{path}/live": watched.live,
        f"/tidegate{path}/history": charts(watched.history.rings[COARSE].since(0.0)),
        f"/tidegate{path}/dead-letters": dead_letters(job.chronicle),
    }
    for record in job.checkpoints.records():
        details = checkpoints.checkpoint_document(record, job.graph.vertices)
        found[f"{path}/checkpoints/details/{record.checkpoint_id}"] = details
    for record in job.checkpoints.records()[:_DETAILED]:
        for vertex in job.graph.vertices:
            place = f"{path}/checkpoints/details/{record.checkpoint_id}/subtasks"
            found[f"{place}/{vertex_id(vertex)}"] = checkpoints.task_details(record, vertex)
    for progress in job.vertices():
        details_of_vertex = vertices.vertex_details(job, progress, rates)
        found[f"{path}/vertices/{vertex_id(progress.vertex)}"] = details_of_vertex
    return {each: redacted_document(as_document(answer)) for each, answer in found.items()}


class Archive:
    """Reads and writes archive files."""

    def __init__(self) -> None:
        self._read: dict[Path, dict[str, Any]] = {}

    def write(self, job_id: str, answers: dict[str, Any]) -> None:
        """Raises OSError."""
        path = _file(job_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in path.parent.glob("*.json.gz"):
            if not (path.parents[1] / f"{old.name.partition('.')[0]}.json").exists():
                old.unlink(missing_ok=True)
        draft = path.with_name(f".{secrets.token_hex(4)}")
        file = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(file, "wb") as writer:
            writer.write(gzip.compress(json.dumps(answers).encode()))
        draft.rename(path)

    def has(self, job_id: str) -> bool:
        return any(_file(job_id, directory).exists() for directory in directories())

    def answer(self, path: str) -> Any:
        """The last answer for a path of an ended job; None if unknown."""
        parts = path.removeprefix("/tidegate").split("/")
        if len(parts) < 3 or parts[1] != "jobs" or not parts[2].isalnum():
            return None
        for directory in directories():
            file = _file(parts[2], directory)
            if file.is_file():
                return self._answers(file).get(path)
        return None

    def _answers(self, file: Path) -> dict[str, Any]:
        if file not in self._read:
            try:
                found = json.loads(gzip.decompress(file.read_bytes()))
            except (OSError, ValueError, EOFError):
                return {}
            self._read = {file: found if isinstance(found, dict) else {}}
        return self._read[file]


def _file(job_id: str, directory: Path | None = None) -> Path:
    return (directory or directories()[0]) / _FOLDER / f"{job_id}.json.gz"
