"""Two drivers or more on one directory, in any order of their calls to the store."""

from hypothesis import Phase, given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.driver_world import World


@examples(150, phases=[Phase.generate])
@given(drivers=st.integers(2, 3), seed=st.integers(0, 1_000_000))
def test_every_record_is_committed_once_whichever_drivers_meet(drivers, seed):
    World(drivers, seed).run()
