"""Stores Spark's classes in the background, so that the next driver starts sooner.

This is done by a process with the lowest priority, and only if nothing is stored yet for the Java
and the PySpark in use. It ends with the process that holds the other end of its pipe.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidegate.cli.standby import start_tied
from tidegate.prerequisites.class_archive import archive_options, store_classes
from tidegate.prerequisites.java import require_java
from tidegate.prerequisites.machine import GIGABYTE, available_memory

_NEEDED_MEMORY: Final = 2 * GIGABYTE
_LOWEST_PRIORITY: Final = 19
_LONGEST_SECONDS: Final = 1800.0
"""A job that does not end must not hold its memory forever."""
_ENDING_SECONDS: Final = 5.0


class ClassStoring:
    """Stores the classes once, whatever comes of it."""

    def __init__(self) -> None:
        self._has_begun = False
        self._running: tuple[subprocess.Popen[bytes], int] | None = None

    def begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            process, _ = self._running = start_tied(__name__, subprocess.DEVNULL)
            # Otherwise it would stay in the list of processes after its end.
            threading.Thread(target=process.wait, daemon=True).start()
            _yield_to_others(process.pid)

    def end(self) -> None:
        """End the process, if it still runs; it removes what is unfinished."""
        if self._running is not None:
            process, pipe = self._running
            self._running = None
            os.close(pipe)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_SECONDS)


def _yield_to_others(pid: int) -> None:
    os.setpriority(os.PRIO_PROCESS, pid, _LOWEST_PRIORITY)
    with suppress(OSError):  # where Linux shares the processor by sessions first
        Path(f"/proc/{pid}/autogroup").write_text(str(_LOWEST_PRIORITY))
    with suppress(OSError):  # what Linux ends first if memory is short
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    main_thread = threading.get_ident()

    def wait_for_the_end(pipe: int) -> None:
        select.select([pipe], [], [], _LONGEST_SECONDS)
        signal.pthread_kill(main_thread, signal.SIGTERM)

    threading.Thread(target=wait_for_the_end, args=(int(sys.argv[1]),), daemon=True).start()
    store_if_missing()


def store_if_missing() -> None:
    """Store the classes unless they are stored for this Java, or memory is short."""
    java = require_java()
    if not archive_options(java) and (available_memory() or 0) >= _NEEDED_MEMORY:
        store_classes(java)


if __name__ == "__main__":
    main()
