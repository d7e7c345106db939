import random

from tidegate.core.fault_points import FaultPoint, Victim
from tidegate.verify.campaign import _orders


def victims(point, kills):
    orders = list(_orders(point, kills, random.Random(0)))
    assert [order.number for order in orders] == list(range(1, len(orders) + 1))
    return [(order.point, order.victim) for order in orders]


def test_slots_and_drivers_are_killed_in_turn():
    assert victims(FaultPoint.COMMIT, range(3)) == [
        (FaultPoint.COMMIT, Victim.SLOT),
        (FaultPoint.COMMIT, Victim.DRIVER),
        (FaultPoint.COMMIT, Victim.SLOT),
    ]


def test_a_second_run_continues_where_the_first_had_to_end():
    assert victims(FaultPoint.COMMIT, range(1, 2)) == [(FaultPoint.COMMIT, Victim.DRIVER)]


def test_a_restore_is_led_to_by_a_kill_after_a_checkpoint():
    assert victims(FaultPoint.RESTORE, range(1, 2)) == [
        (FaultPoint.COMMIT, Victim.SLOT),
        (FaultPoint.RESTORE, Victim.DRIVER),
    ]
