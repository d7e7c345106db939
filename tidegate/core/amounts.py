"""Formats amounts for people."""

from __future__ import annotations


def per_second(rate: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.2f} {unit}/s"
    return f"{rate:.0f}/s"


def duration(seconds: float) -> str:
    """As hours, minutes and seconds."""
    whole = int(max(0.0, seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}"


def byte_size(number: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} B"
