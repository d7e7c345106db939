"""Running a stream to its end and looking at what came out."""

from typing import Any

from tidegate.datastream import DataStream


def collect(stream: DataStream) -> list[Any]:
    """All records, in the order in which the driver got them."""
    with stream.execute_and_collect() as records:
        return list(records)


def in_any_order(stream: DataStream) -> list[Any]:
    """All records, sorted, as the order between subtasks is left open."""
    return sorted(collect(stream))
