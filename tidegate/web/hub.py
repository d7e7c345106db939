"""Samples all jobs about once a second, and sends updates to the pages that watch.

Everything runs in the server's event loop. Each update is built once for all pages. A slow page
gets only the latest update.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.redaction import redacted_document
from tidegate.driver.job_handle import JobHandle
from tidegate.web.documents.common import milliseconds
from tidegate.web.documents.live import LiveJob, LiveOperation, chart_values, charts, live_job
from tidegate.web.forms import Form, as_document
from tidegate.web.live.history import FINE, JobHistory
from tidegate.web.live.rates import Counts, RateMeter
from tidegate.web.operations import Operations
from tidegate.web.requests import Refusal
from tidegate.web.served_jobs import ServedJobs

_SECONDS = 1.0
_LEAST_REST = 20.0
"""The pause is this many times longer than sampling, so that large jobs lose little time."""
_JOBS_SECONDS = 3.0
"""How often the list of jobs of this machine is read."""
_STREAM_SECONDS = 90.0
"""Less than the time limit of an answer; the page then reconnects."""
_BEAT_SECONDS = 2.0
_MOST_PAGES = 200

Frame = bytes


@dataclass(slots=True)
class Watched:
    """One job and its samples."""

    job: JobHandle
    meter: RateMeter = field(default_factory=RateMeter)
    history: JobHistory = field(default_factory=JobHistory)
    live: LiveJob | None = None
    seen_at: float = 0.0
    """Seconds since the epoch. It always grows: pages ask for what is newer than what they have."""

    def look(self, operations: Operations) -> None:
        job, progress = self.job, self.job.progress()
        counts = Counts(
            at=time.monotonic(),
            records_in=progress.records_in,
            records_out=progress.records_out,
            vertices={each.vertex.id: each for each in job.vertices()},
            traffic=job.traffic(),
        )
        self.meter.take(counts)
        under_way = [
            LiveOperation(
                id=id,
                kind=each.kind.value,
                begun=milliseconds(each.begun_at),
                progress=each.progress(),
            )
            for id, each in operations.under_way(job.job_id).items()
        ]
        self.live = live_job(job, counts, self.meter.rates(), under_way)
        self.seen_at = max(round(time.time(), 3), round(self.seen_at + 0.001, 3))
        self.history.add(self.seen_at, chart_values(self.live))


class Page:
    """A watching page, and its pending frames: at most one of a kind."""

    def __init__(self, job_id: str | None, sent_until: float) -> None:
        self.job_id = job_id
        self.sent_until = sent_until
        """The time up to which it has points."""
        self.told_at = 0.0
        """The time of the last update that it got."""
        self.waiting: dict[str, Frame] = {}
        self.wake = asyncio.Event()

    def put(self, kind: str, frame: Frame) -> None:
        self.waiting[kind] = frame
        self.wake.set()


class Hub:
    """The hub of one server; used by the thread of its requests."""

    def __init__(
        self, jobs: ServedJobs, operations: Operations, known_jobs: Callable[[], Form]
    ) -> None:
        self._jobs = jobs
        self._operations = operations
        self._known_jobs = known_jobs
        self._watched: dict[str, Watched] = {}
        self._pages: set[Page] = set()
        self._jobs_document: Any = None
        self._jobs_frame: Frame | None = None
        self._jobs_at = 0.0
        self._is_closed = False

    async def run(self) -> None:
        """Sample until the server ends."""
        while not self._is_closed:
            began = time.monotonic()
            self.look()
            took = time.monotonic() - began
            await asyncio.sleep(max(_SECONDS - took, _LEAST_REST * took))

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for page in self._pages:
            page.wake.set()

    def watched(self, job_id: str) -> Watched:
        """The samples of a job, which is sampled now if it was not yet.

        Raises:
            Refusal: there is no such job.
        """
        job = self._jobs.get(job_id)
        found = self._watched.get(job_id)
        if found is None or found.job is not job:
            found = self._watched[job_id] = Watched(job)
        if found.live is None:
            found.look(self._operations)
        return found

    def look(self) -> None:
        """Sample all running jobs, and update the pages."""
        ids = [str(job.job_id) for job in self._jobs.all()]
        for gone in self._watched.keys() - set(ids):
            del self._watched[gone]
        for id in ids:
            watched = self.watched(id)
            # Once more after the end; then nothing changes.
            if watched.live is None or watched.live.end_time < 0:
                watched.look(self._operations)
        if self._pages:
            self._tell_jobs()
            for watched_id in {page.job_id for page in self._pages if page.job_id is not None}:
                self._tell_job(watched_id)

    def _tell_jobs(self) -> None:
        now = time.monotonic()
        if self._jobs_frame is not None and now < self._jobs_at + _JOBS_SECONDS:
            return
        self._jobs_at = now
        document = as_document(self._known_jobs())
        if document != self._jobs_document:
            self._jobs_document = document
            self._jobs_frame = _frame("jobs", document, time.time())
            for page in self._pages:
                page.put("jobs", self._jobs_frame)

    def _tell_job(self, job_id: str) -> None:
        pages = [page for page in self._pages if page.job_id == job_id]
        watched = self._watched.get(job_id)
        if watched is None:
            frame = _frame("gone", {"jid": job_id}, time.time())
            for page in pages:
                page.put("gone", frame)
            return
        pages = [page for page in pages if page.told_at < watched.seen_at]
        if not pages:
            return
        frame = _frame("job", watched.live, watched.seen_at)
        shared: dict[float, Frame] = {}
        for page in pages:
            page.told_at = watched.seen_at
            page.put("job", frame)
            # Pages that are up to date share the same points.
            if page.sent_until not in shared:
                points = watched.history.rings[FINE].since(page.sent_until)
                shared[page.sent_until] = _frame("points", charts(points), watched.seen_at)
            page.put("points", shared[page.sent_until])

    async def stream(self, job_id: str | None, last_id: str | None) -> AsyncIterator[Frame]:
        """The frames for a page, until it has to reconnect.

        Raises:
            Refusal: there are too many pages, or there is no such job.
        """
        if len(self._pages) >= _MOST_PAGES:
            raise Refusal(429, f"{_MOST_PAGES} pages are open; close some", {"retry-after": "5"})
        watched = None if job_id is None else self.watched(job_id)
        newest = 0.0 if watched is None else watched.seen_at
        missed_since = newest - 1e-6
        if last_id is not None:
            with suppress(ValueError):
                missed_since = min(missed_since, float(last_id) / 1000)
        return self._frames(Page(job_id, missed_since))

    async def _frames(self, page: Page) -> AsyncIterator[Frame]:
        self._pages.add(page)
        try:
            until = time.monotonic() + _STREAM_SECONDS
            yield b"retry: 1000\n\n"
            self._tell_jobs()
            if self._jobs_frame is not None:
                page.put("jobs", self._jobs_frame)
            if page.job_id is not None:
                self._tell_job(page.job_id)
            while not self._is_closed and time.monotonic() < until:
                with suppress(TimeoutError):
                    await asyncio.wait_for(page.wake.wait(), _BEAT_SECONDS)
                page.wake.clear()
                frames, page.waiting = page.waiting, {}
                if "points" in frames and page.job_id in self._watched:
                    page.sent_until = self._watched[page.job_id].seen_at
                yield b"".join(frames.values()) or b":\n\n"
        finally:
            self._pages.discard(page)


def _frame(kind: str, content: Any, at: float) -> Frame:
    text = json.dumps(redacted_document(as_document(content)), separators=(",", ":"))
    return f"id: {round(1000 * at)}\nevent: {kind}\ndata: {text}\n\n".encode()
