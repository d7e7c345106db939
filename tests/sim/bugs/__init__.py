"""Bugs that are planted into the protocol: the simulator must find each of them.

A bug takes one rule out, or gets one a little wrong, as a change of the code might. Where two
rules make up for each other, both are taken out.
"""

from tests.sim.bugs import (
    barriers,
    checkpoints,
    drivers,
    leases,
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
    "pumps",
    "servers",
    "sinks",
    "steps",
    "time",
]
