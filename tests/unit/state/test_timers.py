from tidegate.state.timers import Timer, TimerQueue


def fired(timers, now):
    found = []
    while (timer := timers.pop_due(now)) is not None:
        found.append((timer.timestamp, timer.key))
    return found


def test_timers_fire_in_the_order_of_their_times_then_of_registration():
    timers = TimerQueue()
    for timestamp, key in [(30, "a"), (10, "b"), (20, "c"), (10, "a")]:
        timers.register(timestamp, key, 0)
    assert timers.next_due() == 10
    assert fired(timers, 25) == [(10, "b"), (10, "a"), (20, "c")]
    assert timers.next_due() == 30


def test_a_key_has_one_timer_for_one_time():
    timers = TimerQueue()
    timers.register(10, "a", 0)
    timers.register(10, "a", 0)
    assert len(timers) == 1
    assert fired(timers, 10) == [(10, "a")]
    assert fired(timers, 10) == []


def test_a_deleted_timer_does_not_fire():
    timers = TimerQueue()
    timers.register(10, "a", 0)
    timers.register(10, "b", 0)
    timers.delete(10, "a")
    timers.delete(99, "b")
    assert fired(timers, 10) == [(10, "b")]


def test_a_timer_deleted_and_registered_again_fires_once():
    timers = TimerQueue()
    timers.register(10, "a", 0)
    timers.delete(10, "a")
    timers.register(10, "a", 0)
    assert fired(timers, 10) == [(10, "a")]
    assert timers.next_due() is None


def test_a_timer_may_register_another_that_is_due_at_once():
    timers = TimerQueue()
    timers.register(10, "a", 0)
    assert timers.pop_due(20) == (10, "a", 0)
    timers.register(15, "a", 0)
    assert timers.pop_due(20) == (15, "a", 0)


def test_keys_need_not_be_comparable():
    timers = TimerQueue()
    timers.register(10, "a", 0)
    timers.register(10, None, 0)
    timers.register(10, ("b", 1), 0)
    assert fired(timers, 10) == [(10, "a"), (10, None), (10, ("b", 1))]


def test_deleted_timers_do_not_pile_up():
    timers = TimerQueue()
    timers.register(1_000_000, "kept", 0)
    for timestamp in range(10_000):
        timers.register(timestamp, "a", 0)
        timers.delete(timestamp, "a")
    assert len(timers._heap) < 200
    assert timers.next_due() == 1_000_000


def test_many_are_added_at_once_without_repeating_those_there_are():
    timers = TimerQueue()
    timers.register(10, "a", 0)
    timers.add_all([Timer(5, "b", 0), Timer(10, "a", 0)])
    assert fired(timers, 10) == [(5, "b"), (10, "a")]


def test_a_timer_knows_where_the_state_of_its_key_stands():
    timers = TimerQueue()
    timers.register(10, "a", 3)
    timers.move(lambda place: place + 1)
    assert timers.pop_due(10) == (10, "a", 4)
