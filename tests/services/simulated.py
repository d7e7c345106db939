"""The simulator's brokers and database, for tests without it."""

from contextlib import contextmanager

from tests.sim.clockwork import Process
from tests.sim.plans import Plan, Wish
from tests.sim.world import World


@contextmanager
def simulated(sink):
    """A world in which nothing happens but what a test does, in one process."""
    world = World(Plan.draw(0, Wish(traits={"sink": sink, "pipelines": 1})))
    process = world.sim.current = Process(world.sim, "test")
    process.dozes = 0.0
    world.checks.commits = lambda *arguments: None
    world.checks.prepares = lambda pipeline: (0, 0)
    with world._patched():
        yield lambda: world.sim.meanwhile(1.0)
