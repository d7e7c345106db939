"""Several drivers on one directory, in any order of their calls to the store."""

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.effort import examples
from tests.properties.driver_world import World


class Drivers(RuleBasedStateMachine):
    """One world per example; the assertions are in the world."""

    @rule(drivers=st.integers(2, 3), seed=st.integers(0, 1_000_000))
    def some_meet(self, drivers, seed):
        World(drivers, seed).run()


Drivers.TestCase.settings = examples(120, stateful_step_count=1, phases=[Phase.generate])
TestDrivers = Drivers.TestCase
