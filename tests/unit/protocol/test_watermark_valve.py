"""Watermarks and idleness over channels: facts of Flink's valve and of its combined status."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.protocol.packet import Channel
from tidegate.protocol.watermark_valve import SubtaskTime, WatermarkValve
from tidegate.state.pointers import TimeHandle
from tidegate.stream.elements import FINAL_WATERMARK, NO_WATERMARK, Watermark, WatermarkStatus

IDLE, ACTIVE = WatermarkStatus.IDLE, WatermarkStatus.ACTIVE
END = "end"
CHANNELS = [Channel(0, i) for i in range(3)]

# What comes on which channel, and what the input emits then.
SEQUENCES = {
    "a single channel passes ascending watermarks": [
        (0, 0, [0]),
        (0, 25, [25]),
        (0, 18, []),
        (0, 25, []),
        (0, 42, [42]),
    ],
    "a single channel is what the input is": [
        (0, 25, [25]),
        (0, IDLE, [IDLE]),
        (0, 50, []),
        (0, IDLE, []),
        (0, ACTIVE, [ACTIVE]),
        (0, 50, [50]),
    ],
    "all channels must have spoken": [(0, 0, []), (1, 0, []), (2, 0, [0])],
    "the lowest decides": [
        (0, 0, []),
        (1, 0, []),
        (2, 0, [0]),
        (0, 12, []),
        (2, 8, []),
        (2, 10, []),
        (1, 15, [10]),
        (2, 17, [12]),
        (0, 20, [15]),
    ],
    "idle channels hold nothing back": [
        (0, 15, []),
        (1, 10, []),
        (2, IDLE, [10]),
        (1, 18, [15]),
        (0, IDLE, [18]),
        (1, IDLE, [IDLE]),
    ],
    "an idle channel's watermark is ignored": [
        (2, IDLE, []),
        (2, 100, []),
        (0, 8, []),
        (1, 10, [8]),
    ],
    "a channel that is active again is skipped until it has caught up": [
        (0, 5, []),
        (1, 9, []),
        (2, IDLE, [5]),
        (0, 30, [9]),
        (1, 30, [30]),
        (2, ACTIVE, []),
        (2, 10, []),
        (0, 40, []),
        (1, 40, [40]),
        (2, 50, []),
        (0, 60, []),
        (1, 70, [50]),
    ],
    "the last channel that becomes idle lets out the highest watermark": [
        (0, 20, []),
        (1, 25, []),
        (2, 30, [20]),
        (1, IDLE, []),
        (2, IDLE, []),
        (0, IDLE, [30, IDLE]),
        (1, ACTIVE, [ACTIVE]),
    ],
    "a channel that ends holds nothing back": [
        (0, 7, []),
        (1, 3, []),
        (2, END, [3]),
        (1, END, [7]),
        (0, END, [FINAL_WATERMARK]),
    ],
    "the final watermark of one channel does not make the records of idle ones late": [
        (0, 7, []),
        (1, IDLE, []),
        (2, IDLE, [7]),
        (0, FINAL_WATERMARK, [IDLE]),
        (1, ACTIVE, [ACTIVE]),
        (1, 9, [9]),
        (1, END, [IDLE]),
        (2, END, [FINAL_WATERMARK]),
    ],
}


def plain(elements):
    return [e.timestamp if isinstance(e, Watermark) else e for e in elements]


def give(valve, channel, what):
    if what is END:
        return plain(valve.end(channel))
    if isinstance(what, WatermarkStatus):
        return plain(valve.change(channel, what))
    return plain(valve.advance(channel, what))


@pytest.mark.parametrize("name", SEQUENCES)
def test_an_input_emits(name):
    sequence = SEQUENCES[name]
    channels = CHANNELS[:1] if name.startswith("a single") else CHANNELS
    valve = WatermarkValve(channels)
    assert [(i, what, give(valve, CHANNELS[i], what)) for i, what, _ in sequence] == sequence


def both():
    return SubtaskTime({Channel(0, 0): 0, Channel(1, 0): 1})


def test_the_slower_of_two_inputs_decides_unless_it_is_idle():
    time, (left, right) = both(), (Channel(0, 0), Channel(1, 0))
    assert time.advance(left, Watermark(10)) == []
    assert time.advance(right, Watermark(4)) == [Watermark(4)]
    assert time.change(right, IDLE) == [Watermark(10)]
    assert time.change(left, IDLE) == [IDLE]
    assert time.change(right, ACTIVE) == [ACTIVE]
    assert time.advance(right, Watermark(8)) == []
    assert time.advance(right, Watermark(12)) == [Watermark(12)]


def test_what_an_input_says_before_it_is_idle_counts():
    left, other, right = Channel(0, 0), Channel(0, 1), Channel(1, 0)
    time = SubtaskTime({left: 0, other: 0, right: 1})
    time.change(right, IDLE)
    time.advance(left, Watermark(10))
    time.advance(other, Watermark(20))
    assert time.change(other, IDLE) == []
    assert time.change(left, IDLE) == [Watermark(20), IDLE]


def test_an_input_that_is_active_again_holds_the_other_back():
    """Unlike a channel of one input, as in Flink."""
    time, (left, right) = both(), (Channel(0, 0), Channel(1, 0))
    time.change(right, IDLE)
    assert time.advance(left, Watermark(10)) == [Watermark(10)]
    time.change(right, ACTIVE)
    assert time.advance(left, Watermark(20)) == []
    assert time.advance(right, Watermark(15)) == [Watermark(15)]


def test_an_input_that_has_ended_holds_nothing_back():
    time, (left, right) = both(), (Channel(0, 0), Channel(1, 0))
    time.advance(left, Watermark(10))
    assert time.end(right) == [Watermark(10)]
    assert time.end(left) == [Watermark(FINAL_WATERMARK)]


def test_channels_that_are_new_after_a_restore_have_a_say_after_the_next_one_too():
    time, (slow, fast) = SubtaskTime(dict.fromkeys(CHANNELS[:2], 0)), CHANNELS[:2]
    time.resume(TimeHandle(received=17, inputs=((0, 17),)))
    again = SubtaskTime(dict.fromkeys(CHANNELS[:2], 0))
    again.resume(time.handle())
    assert again.advance(fast, Watermark(36)) == []
    assert again.advance(slow, Watermark(20)) == [Watermark(20)]


@st.composite
def courses(draw):
    """What comes on the channels of two inputs."""
    channels = [Channel(0, 0), Channel(0, 1), Channel(1, 0)]
    steps = st.one_of(
        st.integers(0, 60), st.sampled_from([IDLE, ACTIVE]), st.sampled_from([ACTIVE, END])
    )
    return channels, draw(st.lists(st.tuples(st.sampled_from(channels), steps), max_size=40))


def run(time, channel, what):
    if isinstance(what, int):
        return time.advance(channel, Watermark(what))
    return time.end(channel) if what is END else time.change(channel, what)


@examples(60)
@given(courses(), st.integers(0, 40))
def test_time_continues_after_a_restore_as_if_nothing_had_happened(course, cut):
    channels, steps = course
    inputs = {channel: channel.edge for channel in channels}
    whole = SubtaskTime(inputs)
    for step in steps[:cut]:
        run(whole, *step)
    ended = {channel for channel, what in steps[:cut] if what is END}
    handle = whole.handle()
    running = {inputs[channel] for channel in channels if channel not in ended}
    alive = {channel: i for channel, i in inputs.items() if i in running}
    resumed = SubtaskTime(alive)
    if handle is not None:
        resumed.resume(handle)
    for channel in ended & alive.keys():
        assert resumed.end(channel) == []  # who had ended says so again
    for channel, what in steps[cut:]:
        if channel in alive:
            assert run(resumed, channel, what) == run(whole, channel, what)


@examples(60)
@given(courses())
def test_event_time_never_goes_back_and_is_final_once_all_has_ended(course):
    channels, steps = course
    time = SubtaskTime({channel: channel.edge for channel in channels})
    emitted = [NO_WATERMARK]
    for channel, what in [*steps, *((channel, END) for channel in channels)]:
        for element in run(time, channel, what):
            if isinstance(element, Watermark):
                assert element.timestamp > emitted[-1]
                emitted.append(element.timestamp)
    assert emitted[-1] == FINAL_WATERMARK
    assert FINAL_WATERMARK not in emitted[:-1]
