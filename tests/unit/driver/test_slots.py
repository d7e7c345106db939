"""How slots are launched, and what the end of the job does about launches."""

import pytest

from tests.programs import settings_of
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExternalError
from tidegate.driver.slots import LaunchTried, Slots


class HeldWorkers:
    """A worker whose actions run when the test says so, or when it is stopped."""

    def __init__(self):
        self.actions = []

    def start(self, name):
        return self

    def post(self, action):
        self.actions.append(action)

    def run(self):
        while self.actions:
            self.actions.pop(0)()

    def stop(self, timeout):
        self.run()
        return True


class Launches:
    """A cluster that notes what it launches."""

    def __init__(self):
        self.launched = []
        self.short = None
        self.on_launch = lambda: None

    def shortage(self):
        return self.short

    def launch(self, slot, number):
        self.launched.append((slot, number))
        self.on_launch()


class ClockByHand(SystemClock):
    now = 100.0

    def monotonic(self):
        return self.now


class SlotsByHand:
    def __init__(self, number):
        self.cluster, self.workers, self.clock = Launches(), HeldWorkers(), ClockByHand()
        self.events = []
        self.slots = Slots(
            number,
            b"",
            settings_of().engine,
            self.cluster,
            self.clock,
            self.workers,
            self.events.append,
            on_gone=lambda slot, reason: None,
            on_missing=pytest.fail,
            on_failure=pytest.fail,
        )
        self.slots.start()

    def turn(self):
        """What the job master does again and again."""
        for event in self.events:
            if isinstance(event, LaunchTried):
                self.slots.launch_tried(event)
        self.events.clear()
        self.slots.tick()


def test_slots_are_launched_on_the_worker_once():
    hand = SlotsByHand(2)
    hand.turn()
    assert hand.cluster.launched == []
    hand.workers.run()
    hand.turn()
    hand.workers.run()
    assert hand.cluster.launched == [(0, 1), (1, 1)]


def test_a_slot_that_ends_while_others_are_launched_is_launched_after_them():
    hand = SlotsByHand(2)
    hand.workers.run()
    hand.slots.job_ended(0, "killed")
    hand.clock.now += 10
    hand.slots.tick()
    assert hand.workers.actions == []
    hand.turn()
    hand.workers.run()
    assert hand.cluster.launched == [(0, 1), (1, 1), (0, 2)]


def test_slots_without_room_are_launched_once_there_is_some():
    hand = SlotsByHand(2)
    hand.cluster.short = ExternalError("no room")
    hand.workers.run()
    hand.turn()
    assert hand.workers.actions == []
    hand.cluster.short = None
    hand.clock.now += 1
    hand.turn()
    hand.workers.run()
    hand.turn()
    assert hand.workers.actions == []
    assert hand.cluster.launched == [(0, 1), (1, 1)]


@pytest.mark.parametrize("end", ["stop_launching", "shut_down"])
def test_nothing_is_launched_after_the_end(end):
    hand = SlotsByHand(2)
    getattr(hand.slots, end)()
    hand.workers.run()
    hand.turn()
    hand.workers.run()
    assert hand.cluster.launched == []


def test_the_end_stops_the_launches_that_are_under_way():
    hand = SlotsByHand(2)
    hand.cluster.on_launch = hand.slots.stop_launching
    hand.workers.run()
    assert hand.cluster.launched == [(0, 1)]


def test_no_slot_is_launched_again_while_it_is_being_launched():
    hand = SlotsByHand(1)
    hand.turn()
    hand.turn()
    assert len(hand.workers.actions) == 1
