"""What Structured Streaming has to remember to go on behind a micro-batch.

Its checkpoint directory says which offsets belong to which batch. A copy of the few files that
matter, taken while a batch is handed over, makes a new directory in which a query repeats exactly
this batch and then goes on.
"""

from __future__ import annotations

import pickle
import re
import zlib
from pathlib import Path

_SOURCES = "sources"
_COMPACTED = re.compile(r"(\d+)\.compact")


def copy_of_log(directory: Path, batch: int) -> bytes:
    """The files of a query's checkpoint directory that its batch of this number needs."""
    wanted = [
        directory / "metadata",
        *(directory / "offsets" / str(number) for number in (batch - 1, batch)),
        directory / "commits" / str(batch - 1),
    ]
    for source in sorted((directory / _SOURCES).glob("*")):
        wanted += _of_source(source)
    files = {
        str(path.relative_to(directory)): path.read_bytes() for path in wanted if path.is_file()
    }
    return zlib.compress(pickle.dumps(files, protocol=5))


def write_log(copy: bytes, directory: Path) -> None:
    """Make a checkpoint directory from a copy."""
    files: dict[str, bytes] = pickle.loads(zlib.decompress(copy))
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _of_source(directory: Path) -> list[Path]:
    """The log of one source: its last summary and what came after it, or all of it."""
    files = [
        path for path in directory.rglob("*") if path.is_file() and not path.name.startswith(".")
    ]
    summaries = [int(found[1]) for path in files if (found := _COMPACTED.fullmatch(path.name))]
    last = max(summaries, default=-1)
    return [path for path in files if not path.stem.isdigit() or int(path.stem) >= last]
