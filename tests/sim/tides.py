"""Programs in event time whose results do not depend on timing.

    source ──▶ Remembers ──key_by──▶ windows, a join or timers ──▶ Tide ──▶ sink
                                            └─────── late ─────────────────▶ ┘

Event time passes in *rounds* of a second. A stream has three records per round, or none, and is
idle then. The first record of a round waits until all operators have seen the end of the previous
one, so it is certain which records are late, in this attempt and in every later one. The others
wait until all streams of the round have begun, so that an idle stream is back before event time
continues. A stream ends once all operators have seen the end of its last round: nobody hears of it
from the streams that remain, if they are idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.sim.clockwork import Wrong, world
from tidegate.connectors.source import ReaderContext
from tidegate.core.ids import PipelineId
from tidegate.datastream.aggregates import count, sum_, window_end, window_start
from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.datastream.functions import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from tidegate.datastream.output_tag import OutputTag
from tidegate.graph.logical import Transformation
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot, Output
from tidegate.operators.event_time.strategy import (
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from tidegate.operators.windows.assigners import EventTimeSessionWindows, TumblingEventTimeWindows
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.stream.batch import Batch
from tidegate.stream.elements import FINAL_WATERMARK, Barrier, Watermark
from tidegate.types.typeinfo import Types

if TYPE_CHECKING:
    from tests.sim.cluster import SlotProcess
    from tests.sim.programs import Program

ROUND = 1000
PER_ROUND = 3
WINDOW = 500
GAP = 250
NEAR = 400
TICK = 200
LAST_WORDS_SECONDS = 0.3
KINDS = ("tumbling", "session", "join", "timers")
LATENESS = {"tumbling": ROUND, "session": 500}
"""Windows of a round before are still there in this one, or not any more."""
RECORD = Types.TUPLE([Types.LONG()] * 5)


class Drop(NamedTuple):
    """A record in the stream."""

    stream: int
    position: int
    key: int
    weight: int
    """Zero if it comes after the first firing of its window, so that the order does not matter."""
    time: int


class Place(NamedTuple):
    round: int
    index: int
    """In its round."""
    is_last: bool
    """Whether it is the last of its stream in its round."""
    rests: bool
    """Whether its stream has nothing in the next round."""


def rounds_of(program: Program, stream: int) -> list[int]:
    """The rounds in which the stream has records."""
    most = -(-max(program.streams[0]) // PER_ROUND)
    numbers = range(2 * most + 1)
    return [n for n in numbers if not (program.idles and n and (stream + n) % 4 == 3)]


def fitting(length: int) -> int:
    """A stream of about this length, which does not end with the first record of a round."""
    return length + (length % PER_ROUND == 1)


@lru_cache(maxsize=4096)
def place_of(program: Program, stream: int, position: int) -> Place:
    rounds = rounds_of(program, stream)
    number, index = divmod(position, PER_ROUND)
    is_last = index == PER_ROUND - 1 or position == program.streams[0][stream] - 1
    rests = is_last and rounds[number + 1] > rounds[number] + 1
    return Place(rounds[number], index, is_last, rests)


@lru_cache(maxsize=4096)
def end_before(program: Program, round: int) -> int:
    """When the last non-empty round before this one ends."""
    filled = {
        place_of(program, stream, position).round
        for stream, length in enumerate(program.streams[0])
        for position in range(length)
    }
    return max((each + 1 for each in filled if each < round), default=0) * ROUND - 1


@lru_cache(maxsize=4096)
def rounds_late(program: Program, stream: int, position: int) -> int:
    """By how many rounds a record is late."""
    place, choice = place_of(program, stream, position), (7 * stream + 3 * position) % 5
    if end_before(program, place.round) < place.round * ROUND - 1:
        return 0
    if place.round >= 1 and choice == 0 and program.time != "session":
        return 1
    return 2 if place.round >= 2 and choice == 1 else 0


@lru_cache(maxsize=4096)
def drop_of(program: Program, stream: int, position: int) -> Drop:
    place, late = place_of(program, stream, position), rounds_late(program, stream, position)
    time = place.round * ROUND + 100 + 300 * place.index + 37 * stream - late * ROUND
    weight = 0 if late else 100 * stream + position + 1
    return Drop(stream, position, program.key_of((stream, position)), weight, time)


# --- what must come out -----------------------------------------------------------------------


def expected(program: Program, limits: Sequence[int]) -> Counter[Any]:
    """All results, if this much of each stream is read and event time then ends."""
    read = [(s, p) for s, limit in enumerate(limits) for p in range(limit)]
    drops = [drop_of(program, *each) for each in read]
    found = {"tumbling": _tumbling, "session": _sessions, "join": _joined, "timers": _timers}
    return Counter(found[program.time](program, drops))


def certain(program: Program, limits: Sequence[int]) -> list[Any]:
    """Results that are certain when this much of each stream is processed."""
    begun = max(
        (place_of(program, s, limit - 1).round for s, limit in enumerate(limits) if limit),
        default=0,
    )
    now = end_before(program, begun)
    return [each for each in expected(program, limits) if _is_due(each, now)]


def _is_due(result: tuple[Any, ...], now: int) -> bool:
    match result:
        case ("window", _, _, end, *_):
            return int(end) - 1 <= now
        case ("tick", _, time):
            # That of a late record fires when event time next moves.
            return int(time) + 3 * ROUND <= now
    return True


def _late(program: Program, drops: Iterable[Drop], rounds: int) -> Iterator[tuple[Any, ...]]:
    for drop in drops:
        if rounds_late(program, *drop[:2]) >= rounds:
            yield "late", *drop[:2]


def _tumbling(program: Program, drops: list[Drop]) -> Iterator[tuple[Any, ...]]:
    yield from _late(program, drops, 2)
    windows: dict[tuple[int, int], list[Drop]] = {}
    for drop in drops:
        if rounds_late(program, *drop[:2]) < 2:
            windows.setdefault((drop.key, drop.time - drop.time % WINDOW), []).append(drop)
    for (key, start), held in windows.items():
        weight = sum(drop.weight for drop in held)
        late = sum(drop.weight == 0 for drop in held)
        for number in range(len(held) - late, len(held) + 1):
            if number:
                yield "window", key, start, start + WINDOW, number, weight


def _sessions(program: Program, drops: list[Drop]) -> Iterator[tuple[Any, ...]]:
    yield from _late(program, drops, 1)
    sessions: list[list[Drop]] = []
    for drop in sorted(drops, key=lambda drop: (drop.key, drop.time)):
        if rounds_late(program, *drop[:2]):
            continue
        last = sessions[-1][-1] if sessions else None
        if last is not None and last.key == drop.key and drop.time <= last.time + GAP:
            sessions[-1].append(drop)
        else:
            sessions.append([drop])
    for held in sessions:
        span = held[0].time, held[-1].time + GAP
        yield "window", held[0].key, *span, len(held), sum(drop.weight for drop in held)


def _joined(program: Program, drops: list[Drop]) -> Iterator[tuple[Any, ...]]:
    yield from _late(program, drops, 1)
    on_time = [drop for drop in drops if not rounds_late(program, *drop[:2])]
    for left in on_time:
        for right in on_time:
            is_near = abs(left.time - right.time) <= NEAR and left.key == right.key
            if is_near and is_left(left) and not is_left(right):
                yield "pair", left.key, *left[:2], *right[:2]


def _timers(program: Program, drops: list[Drop]) -> Iterator[tuple[Any, ...]]:
    for drop in drops:
        late = rounds_late(program, *drop[:2])
        yield "seen", *drop[:2], late > 0
        yield "tick", drop.key, drop.time + TICK + late


# --- the source -------------------------------------------------------------------------------


@dataclass
class Attempts:
    """The event time of each attempt, which no process knows."""

    watermarks: dict[Any, dict[int, int]] = field(default_factory=dict)
    """By attempt and subtask of the operator in event time."""
    positions: dict[Any, dict[int, list[tuple[int, int]]]] = field(default_factory=dict)
    """By attempt and stream: the steps in which it was read, and up to where."""

    def came_to(self, key: Any, subtask: int, watermark: int) -> None:
        self.watermarks.setdefault(key, {})[subtask] = watermark

    def begins(self, key: Any, stream: int, position: int) -> None:
        self.positions.setdefault(key, {})[stream] = [(0, position)]

    def reads(self, key: Any, stream: int, step: int, position: int) -> None:
        self.positions[key][stream].append((step, position))

    def have_all(self, key: Any, width: int, watermark: int) -> bool:
        found = self.watermarks.get(key, {})
        return all(found.get(subtask, 0) >= watermark for subtask in range(width))

    def has_begun(self, key: Any, stream: int, step: int, position: int) -> bool:
        """Whether it was read up to here before a step; a stream without a reader has ended."""
        found = self.positions[key].get(stream, [(0, position)])
        return any(earlier < step and reached >= position for earlier, reached in found)


def attempt_key(attempt: int) -> Any:
    process: Any = world().sim.current
    return process.cluster.driver.name, attempt


class Calendar:
    """When a reader may read what."""

    def __init__(self, program: Program, context: ReaderContext) -> None:
        self._program, self._width = program, context.parallelism
        self._key = attempt_key(context.attempt)

    def begins(self, stream: int, position: int) -> None:
        world().tides.begins(self._key, stream, position)

    def reads(self, stream: int, position: int) -> None:
        world().tides.reads(self._key, stream, self._step(), position)

    def _step(self) -> int:
        process: SlotProcess = world().sim.current  # type: ignore[assignment]
        return int(process.host._machine._units[PipelineId(0)]._step)

    def may_read(self, stream: int, position: int, *, is_next_step: bool) -> bool:
        program, tides = self._program, world().tides
        place = place_of(program, stream, position)
        if place.index == 0:
            end = end_before(program, place.round)
            return end < 0 or tides.have_all(self._key, self._width, end)
        step = self._step() + is_next_step
        return all(
            tides.has_begun(self._key, other, step, first + 1)
            for other, first in self._firsts(place.round)
        )

    def may_end(self, stream: int) -> bool:
        """Whether all operators have seen the end of its last round, which it takes with it."""
        last = place_of(self._program, stream, self._program.streams[0][stream] - 1)
        return world().tides.have_all(self._key, self._width, (last.round + 1) * ROUND - 1)

    def _firsts(self, round: int) -> Iterator[tuple[int, int]]:
        """The first record of each stream in a round."""
        for stream, length in enumerate(self._program.streams[0]):
            rounds = rounds_of(self._program, stream)
            if round in rounds and (first := rounds.index(round) * PER_ROUND) < length:
                yield stream, first


def batch_of(program: Program, stream: int, positions: range, context: ReaderContext) -> Batch:
    drops = [tuple(drop_of(program, stream, position)) for position in positions]
    return Batch.of_records(drops, context.format)


class Marks(WatermarkGenerator):
    """Reports the position of a stream in its round, and whether it pauses in the next one."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        stream, position = event[:2]
        place = place_of(self._program, stream, position)
        start = place.round * ROUND
        if place.is_last:
            output.emit_watermark(start + ROUND - 1)
            if place.rests:
                output.mark_idle()
        else:
            on_time = start + 100 + 300 * place.index + 37 * stream
            output.emit_watermark(on_time - 1 if place.index else start + 50)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Event time only advances with records."""


# --- operators --------------------------------------------------------------------------------


class Tide(Operator):
    """Records event time, which must never go back, in any life of the operator."""

    def keeps_state(self) -> bool:
        return True

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._subtask, self._now = context.subtask, context.watermark
        self._key = attempt_key(context.attempt)
        self._own = context.operator_state.get_list_state(ListStateDescriptor("own"))
        self._all = context.operator_state.get_union_list_state(ListStateDescriptor("all"))
        before = [each for each in self._all.get() if each[2] < FINAL_WATERMARK]
        widths = {width for _, width, _ in before}
        own = [now for subtask, _, now in before if subtask == context.subtask]
        if widths == {context.parallelism} and own and own[0] != self._now:
            raise Wrong(f"event time was {own[0]} in a checkpoint, and is restored as {self._now}")
        lowest = min((now for *_, now in before), default=self._now)
        if widths != {context.parallelism} and self._now < lowest:
            raise Wrong(f"event time goes back from {lowest} to {self._now}")
        self._width = context.parallelism
        world().tides.came_to(self._key, self._subtask, self._now)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self.output.emit(batch)

    def on_watermark(self, watermark: Watermark) -> None:
        if watermark.timestamp <= self._now:
            raise Wrong(f"event time goes back from {self._now} to {watermark.timestamp}")
        self._now = watermark.timestamp
        world().tides.came_to(self._key, self._subtask, self._now)
        super().on_watermark(watermark)

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot | None:
        self._all.update([(self._subtask, self._width, self._now)])
        return None


class Adds(AggregateFunction):
    """(number, weight)."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[3]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Shows(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        [(number, weight)] = elements
        window = context.window()
        yield "window", key, window.start, window.end, number, weight


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield "pair", left[2], *left[:2], *right[:2]


class Ticks(KeyedProcessFunction):
    def __init__(self, program: Program) -> None:
        self._program = program

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        late = rounds_late(self._program, *value[:2])
        ctx.timer_service().register_event_time_timer(value[4] + TICK + late)
        is_late = value[4] <= ctx.timer_service().current_watermark()
        yield "seen", *value[:2], is_late

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "tick", ctx.get_current_key(), timestamp


def is_left(record: Any) -> bool:
    return bool(record[1] % 2 == 0)


def is_right(record: Any) -> bool:
    return not is_left(record)


def key_of(record: Any) -> int:
    return int(record[2])


def time_of(record: Any, time: int) -> int:
    return int(record[4])


def late(record: Any) -> tuple[Any, ...]:
    return "late", *record[:2]


def shown(row: Any) -> tuple[Any, ...]:
    key, number, weight, start, end = row
    return "window", key, start, end, number, weight


def build(program: Program, source: Any, remembers: Any, sink: Operator) -> Transformation:
    """The sink of a program in event time, as users write it."""
    environment = StreamExecutionEnvironment(None, executor=object())  # type: ignore[arg-type]
    kind = RECORD if program.typed else None
    generator = partial(Marks, program)
    strategy = WatermarkStrategy.for_generator(generator).with_timestamp_assigner(
        4 if program.typed else time_of
    )
    stream = environment.from_source(source, strategy, "tides", kind).uid("source 0")
    stream = stream.map(remembers, output_type=kind).uid("remembers 0")
    results = _in_time(program, stream, kind)
    written = results._sink("sink", sink)
    written._transformation.uid = "sink 0"
    return written._transformation


def _in_time(program: Program, stream: DataStream, kind: Any) -> DataStream:
    key: Any = 2 if program.typed else key_of
    tag = OutputTag("late", kind)
    if program.time == "timers":
        ticks = stream.key_by(key).process(Ticks(program)).uid("time")
        return ticks._transform("tide", Tide(), None).uid("tide")
    if program.time == "join":
        left, right = stream.filter(is_left).key_by(key), stream.filter(is_right).key_by(key)
        joined = left.interval_join(right).between(-NEAR, NEAR)
        joined = joined.side_output_left_late_data(tag).side_output_right_late_data(tag)
        results = found = joined.process(Pairs()).uid("time")
    else:
        assigner: Any = TumblingEventTimeWindows.of(WINDOW)
        if program.time == "session":
            assigner = EventTimeSessionWindows.with_gap(GAP)
        windows = stream.key_by(key).window(assigner)
        windows = windows.allowed_lateness(LATENESS[program.time]).side_output_late_data(tag)
        if program.typed:
            found = windows.agg(n=count(), w=sum_(3), start=window_start(), end=window_end())
            found = found.uid("time")
            results = found.map(shown).uid("shown")
        else:
            results = found = windows.aggregate(Adds(), Shows()).uid("time")
    dropped = found.get_side_output(tag).map(late).uid("late")
    return results._transform("tide", Tide(), None).uid("tide").union(dropped)
