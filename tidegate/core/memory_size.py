"""Memory sizes as users write them, and PyFlink's `MemorySize`."""

from __future__ import annotations

import re
from functools import total_ordering

_BYTES = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mib", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gib", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tib", "tebibytes"), 1 << 40),
}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


@total_ordering
class MemorySize:
    """A number of bytes; units count by 1024, as everywhere in Flink."""

    def __init__(self, bytes_size: int) -> None:
        if bytes_size < 0:
            raise ValueError(f"a memory size cannot be negative, got {bytes_size}")
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """A size of this many mebibytes."""
        return MemorySize(mebi_bytes << 20)

    @staticmethod
    def parse(value: MemorySize | int | str) -> MemorySize:
        """Parse "64 mb", "1g" or a number of bytes.

        Raises:
            ValueError: the text is not a size; the message says what to write instead.
        """
        if isinstance(value, MemorySize):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return MemorySize(value)
        amount = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
        if amount is None or (size := _BYTES.get(amount[2].lower())) is None:
            raise ValueError("give a number and a unit, like '64 kb', '512m' or '1 gb'")
        return MemorySize(int(float(amount[1]) * size))

    def get_bytes(self) -> int:
        """The size in bytes."""
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """The size in whole kibibytes."""
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        """The size in whole mebibytes."""
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        """The size in whole gibibytes."""
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        """The size in whole tebibytes."""
        return self._bytes >> 40

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and other._bytes == self._bytes

    def __lt__(self, other: MemorySize) -> bool:
        return self._bytes < other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __repr__(self) -> str:
        for unit, size in (("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)):
            if self._bytes and self._bytes % size == 0:
                return f"{self._bytes // size} {unit}"
        return f"{self._bytes} bytes"
