"""Planted bugs in the protocol, each of which the simulator must find.

A bug removes a rule, or gets one slightly wrong, as a code change might. If two rules compensate
for each other, both are removed.
"""

from tests.sim.bugs import (
    barriers,
    checkpoints,
    drivers,
    leases,
    machines,
    pumps,
    servers,
    sinks,
    steps,
    time,
)
from tests.sim.bugs.planting import BUGS, Bug
from tests.sim.bugs.search import find, find_all

__all__ = [
    "BUGS",
    "Bug",
    "barriers",
    "checkpoints",
    "drivers",
    "find",
    "find_all",
    "leases",
    "machines",
    "pumps",
    "servers",
    "sinks",
    "steps",
    "time",
]
