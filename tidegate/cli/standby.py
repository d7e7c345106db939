"""A process that has imported what a driver needs, and waits for the command to become one.

The imports take seconds. Until its command comes, it uses no processor and touches nothing of a
job. It ends with the process that holds the other end of its pipe.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final

_NEEDED: Final = (
    "tidegate.cli.main",
    "tidegate.datastream",
    "tidegate.datastream.execution.hosting",
    "tidegate.driver.launch",
    "tidegate.web.server",
)
_INTERPRETER: Final = ("-u", "-m")
_COMMAND: Final = "tidegate"


class Standby:
    """Starts drivers, in a process that is ready if there is one."""

    def __init__(self) -> None:
        self._waiting: tuple[subprocess.Popen[bytes], int] | None = None

    def prepare(self) -> None:
        """Have a process ready for the next start."""
        if self._waiting is None:
            self._waiting = start_tied(__name__)

    def start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own."""
        before = [sys.executable, *_INTERPRETER, _COMMAND]
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            process, pipe = waiting
            with suppress(BrokenPipeError), os.fdopen(pipe, "wb") as file:
                if list(argv[: len(before)]) == before:
                    file.write(json.dumps(argv[len(before) :]).encode())
                    file.flush()
                    if process.poll() is None:
                        return process
            _end(process)
        return subprocess.Popen(argv, start_new_session=True)

    def dismiss(self) -> None:
        """End the process that waits, if there is one."""
        if self._waiting is not None:
            process, pipe = self._waiting
            self._waiting = None
            os.close(pipe)
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that has done nothing yet, and may be stopped or in an endless import."""
    process.kill()
    process.wait()


def start_tied(module: str, output: int | None = None) -> tuple[subprocess.Popen[bytes], int]:
    """Run a module in a session of its own, with a pipe to read from; returns our end of it.

    The pipe ends with this process, however it ends.
    """
    reading, writing = os.pipe()
    argv = [sys.executable, *_INTERPRETER, module, str(reading)]
    try:
        process = subprocess.Popen(
            argv, pass_fds=(reading,), stdout=output, stderr=output, start_new_session=True
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    return process, writing


def main() -> None:
    pipe = int(sys.argv[1])
    for module in _NEEDED:
        with suppress(Exception):  # the command will report the error
            import_module(module)
    with os.fdopen(pipe, "rb") as file:
        command = file.read()
    if command:
        sys.argv = [_COMMAND, *json.loads(command)]
        import_module("tidegate.cli.main").app(prog_name=_COMMAND)


if __name__ == "__main__":
    main()
