"""Cancels Spark jobs without waiting for Spark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tidegate.transport.spark_errors import spark_may_be_gone

if TYPE_CHECKING:
    from pyspark import SparkContext


def cancel_group(context: SparkContext, group: str) -> threading.Thread | None:
    """Cancel the jobs of a group on a thread of its own, if there is room for one.

    The caller may be the job master: if it waited for Spark, its slots would lose their leases. No
    later job may be in the group.
    """

    def cancel() -> None:
        with spark_may_be_gone():
            context.cancelJobGroup(group)

    with spark_may_be_gone():
        thread = threading.Thread(target=cancel, name="tidegate-cancel", daemon=True)
        thread.start()
        return thread
    return None
