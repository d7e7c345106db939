"""How much a restore reads. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.protocol.restore import SubtaskRestore
from tidegate.state.key_groups import KeyGroupRange
from tidegate.state.snapshot import FileSegment, KeyedStateHandle, Segment


def bytes_to_read(restore: SubtaskRestore, key_groups: KeyGroupRange) -> int:
    """The bytes in files that a subtask with these key groups reads; small state is in none."""
    found = [
        *(channel.content for channel in restore.in_flight),
        *(
            segment
            for operator in restore.operators.values()
            for segment in (*operator.operator.values(), *operator.owned)
        ),
        *(
            segment
            for operator in restore.operators.values()
            for keyed in operator.keyed
            for segment in _of_groups(keyed, key_groups)
        ),
    ]
    return sum(segment.size for segment in found if isinstance(segment, FileSegment))


def _of_groups(handle: KeyedStateHandle, wanted: KeyGroupRange) -> Iterator[Segment]:
    """A database is read whole, chunks and tables only where they hold something wanted."""
    yield from (file.content for file in handle.native_files)
    for chunk in handle.chunks:
        if any(group in wanted for group, _ in chunk.groups):
            yield chunk.payload
    for table in handle.tables:
        parts = [
            part.content
            for part in table.row_groups
            if any(group in wanted for group, _ in part.groups)
        ]
        if parts:
            yield from (*parts, table.footer)
