"""`JobID`: the id of one run of a program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobID:
    """32 hexadecimal digits, as in Flink."""

    value: str

    def __str__(self) -> str:
        return self.value
