from tidegate.core.modes import FailoverStrategy
from tidegate.protocol.region import RegionState
from tidegate.protocol.restart_strategy import regions_to_reset

REGIONS = {
    0: RegionState.FAILING,
    1: RegionState.RUNNING,
    2: RegionState.FINISHED,
    3: RegionState.RESTARTING,
    4: RegionState.CREATED,
    5: RegionState.DEPLOYING,
}


def test_region_failover_resets_the_failed_region_alone():
    assert regions_to_reset(FailoverStrategy.REGION, 0, REGIONS) == {0}


def test_full_failover_resets_all_that_was_deployed_and_does_not_wait_for_its_restart_already():
    assert regions_to_reset(FailoverStrategy.FULL, 0, REGIONS) == {0, 1, 2, 5}
