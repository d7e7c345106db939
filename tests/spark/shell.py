"""The `tidegate` command in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.spark.scripts import environment


class Shell:
    """Runs `tidegate` as a user of one machine does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**environment(directory), "TIDEGATE_HOME": str(directory / "home")}

    def __call__(self, *arguments: Any, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tidegate", *map(str, arguments)],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout.strip() if code == 0 else done.stderr.strip()

    def json(self, *arguments: Any) -> Any:
        return json.loads(self(*arguments, "--json"))

    def jobs(self, *options: str) -> dict[str, Any]:
        return {job["jid"]: job for job in self.json("list", *options)["jobs"]}

    def cancel_all(self) -> None:
        """End what a test has left running."""
        for job in self.jobs().values():
            self("cancel", job["jid"])
