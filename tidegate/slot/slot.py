"""The long-running Spark task that hosts a slot."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from tidegate.core.clock import SystemClock
from tidegate.core.errors import LineClosed
from tidegate.core.ids import Address, SlotIndex
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import Register, SlotHeartbeat, SlotMessage
from tidegate.slot.function_logs import forward_logs
from tidegate.slot.slot_host import SlotHost
from tidegate.slot.step_server import StepServer
from tidegate.storage.private_directory import PrivateDirectory
from tidegate.transport.control import ControlLine
from tidegate.transport.versions import versions
from tidegate.transport.wire import Listener, address_towards, dial

_LINE_ENDED = "its control line ended"
_FAREWELL_SECONDS = 3.0
_DECAY_MILLISECONDS = 100
_ARENAS = 2
_LARGEST_REUSED_BYTES = 8 << 20
_MOST_FREE_BYTES = 16 << 20
_SWITCH_SECONDS = 0.001
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""From malloc.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTask:
    """What Spark runs: one partition, one slot, one process."""

    slot: SlotIndex
    launch: int
    control: Address
    secret: bytes
    is_local: bool
    """On a local master, only Unix sockets are opened."""
    host: str | None
    """The host name at which other machines reach the step server; None to determine it."""
    ports: tuple[int, ...]
    directory: str | None
    """A directory for the files of the slot, removed by its creator; None to create one."""
    heartbeat_seconds: float
    closing_seconds: float
    log_level: int
    """The minimum level of log records that are sent to the driver."""

    def __call__(self, partition: Iterable[object]) -> Iterator[object]:
        """Serve until the driver ends the slot.

        The partition is not read on purpose: Spark then ends the process instead of reusing it, and
        its memory, for other tasks.
        """
        task = TaskContext.get()
        attempt = task.attemptNumber() if task is not None else 0
        incarnation = Incarnation.create(self.slot, self.launch, attempt)
        own = PrivateDirectory("slot") if self.directory is None else None
        parent = self.directory if own is None else own.path
        directory = Path(tempfile.mkdtemp(prefix=f"slot-{self.slot}-", dir=parent))
        try:
            _SlotProcess(self, incarnation, directory).run()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            if own is not None:
                own.remove()
        return iter(())


class _SlotProcess:
    """The process of a slot: its line to the driver, its step server, its lease."""

    def __init__(self, task: SlotTask, incarnation: Incarnation, directory: Path) -> None:
        self._task = task
        self._incarnation = incarnation
        self._line = ControlLine(dial(task.control, task.secret), self._leave)
        self._host = SlotHost(
            incarnation,
            self._send,
            SystemClock(),
            directory,
            closing_seconds=task.closing_seconds,
            on_stuck=lambda: os._exit(1),
        )
        self._listener = Listener(
            unix_path=str(directory / "steps.sock"),
            host=_reachable_host(task),
            ports=task.ports,
        )

    def run(self) -> None:
        task = self._task
        _change_threads_quickly()
        _collect_garbage_rarely()
        set_up_memory()
        forward_logs(self._send, task.log_level)
        self._send(
            Register(
                self._incarnation,
                self._listener.address,
                versions(),
                os.getpid(),
                socket.gethostname(),
            )
        )
        self._listener.serve(task.secret, StepServer(self._host).serve)
        threading.Thread(target=self._listen, name="tidegate-control", daemon=True).start()
        while not self._host.is_over.wait(task.heartbeat_seconds):
            self._host.beat()
        self._listener.close()
        if not self._host.close(task.closing_seconds):
            # User code does not return; only ending the process stops it.
            os._exit(1)
        self._line.close(_FAREWELL_SECONDS)

    def _send(self, message: SlotMessage) -> None:
        try:
            # The heartbeat thread checks the lease, so it must never wait.
            self._line.send(message, waits=not isinstance(message, SlotHeartbeat))
        except LineClosed:
            self._leave()

    def _listen(self) -> None:
        try:
            for message in self._line.messages():
                self._host.handle(message)  # type: ignore[arg-type]
        finally:
            self._leave()

    def _leave(self) -> None:
        """Stop; the line is closed last: the driver then uses another process at once."""
        self._host.leave(_LINE_ENDED)


def _change_threads_quickly() -> None:
    """Let the mailbox continue soon while another thread writes a snapshot."""
    sys.setswitchinterval(_SWITCH_SECONDS)


def _collect_garbage_rarely() -> None:
    """Collect garbage rarely: millions of short-lived records form no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


def set_up_memory() -> None:
    """Make allocators return most free memory, but not the columns of the last batch.

    By default, each thread keeps its peak, while large arrays come from the kernel and go back at
    once: to clear their pages again for every batch takes as long as to compute on them.
    """
    with suppress(OSError, AttributeError):  # only glibc has it
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_REUSED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _MOST_FREE_BYTES)
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
        pa.jemalloc_set_decay_ms(_DECAY_MILLISECONDS)


def _reachable_host(task: SlotTask) -> str | None:
    if task.is_local:
        return None
    return task.host or address_towards(task.control.host)
