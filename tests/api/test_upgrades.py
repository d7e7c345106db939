"""A job is stopped, its program changed, and carried on: what `plan` says beforehand holds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.programs import PATIENCE
from tests.taps import Tap
from tidegate.checkpoint.locate import open_checkpoint
from tidegate.common import Row, Types
from tidegate.core.errors import StateMisuse, StateNotClaimed, StateTypeChanged, TidegateError
from tidegate.core.modes import SavepointFormat
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.datastream.connectors.file_system import Encoder, FileSink
from tidegate.datastream.functions import CheckpointedFunction, KeyedProcessFunction, MapFunction
from tidegate.datastream.state import ListStateDescriptor, ValueStateDescriptor
from tidegate.driver.upgrade_plan import StateFate, UpgradePlan, plan_upgrade
from tidegate.testing.environments import MiniExecutor

STOP = 40
RECORDS = [(f"key {n % (7 if n < STOP else 9)}", n) for n in range(90)]
"""Two of the keys come later."""
EVERY = "execution.checkpointing.interval"
LEAVE = {"execution.state-recovery.ignore-unclaimed-state": True}
TOTAL = Types.ROW_NAMED(["total"], [Types.LONG()])
ACCOUNT = Types.ROW_NAMED(
    ["total", "currency"], [Types.LONG(), Types.STRING()], defaults={"currency": "EUR"}
)


class Totals(KeyedProcessFunction):
    """The sum of a key's numbers so far, in a row."""

    held = TOTAL
    name = "account"

    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor(self.name, self.held))

    def first(self):
        return Row(total=0)

    def process_element(self, value, ctx):
        key, number = value
        row = self.state.value() or self.first()
        row["total"] += number
        self.state.update(row)
        yield self.line(key, row)

    def line(self, key, row):
        return f"{key},{row.total}"


class Accounts(Totals):
    """The same with a field more, which is another in rows that are made anew."""

    held = ACCOUNT

    def first(self):
        return Row(total=0, currency="USD")

    def line(self, key, row):
        return f"{key},{row.total},{row.currency}"


class WithoutTotal(Totals):
    held = Types.ROW_NAMED(["sum"], [Types.LONG()])


class Counted(Totals):
    """Has another state beside the first."""

    def open(self, runtime_context):
        super().open(runtime_context)
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield from super().process_element(value, ctx)


class Buffered(MapFunction, CheckpointedFunction):
    """Has operator state of a type; returns what it is given."""

    held = TOTAL

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.seen = store.get_list_state(ListStateDescriptor("seen", self.held))

    def snapshot_state(self, context):
        pass

    def map(self, value):
        self.seen.add(Row(**dict.fromkeys(self.held.get_field_names())))
        return value


class BufferedMore(Buffered):
    held = ACCOUNT


class Marked(MapFunction):
    """Lets pass what it is given, and counts it by key."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def map(self, value):
        self.seen.update((self.seen.value() or 0) + 1)
        return value


def of_pair(pair):
    return pair[0]


@dataclass(frozen=True)
class Version:
    """A version of the program."""

    totals: type[Totals] = Totals
    before: tuple[str, ...] = ()
    """Stages in front of the totals."""
    buffered: type[Buffered] = Buffered
    uids: bool = True
    uid: str = "totals"
    chaining: bool = True
    parallelism: int = 2
    max_parallelism: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def build(self, env: StreamExecutionEnvironment, tap: Tap, output: Any) -> None:
        def named(stream, uid):
            return stream.uid(uid) if self.uids else stream

        if self.max_parallelism is not None:
            env.set_max_parallelism(self.max_parallelism)
        if not self.chaining:
            env.disable_operator_chaining()
        stream = named(env.from_source(tap), "source")
        for stage in self.before:
            if stage == "marked":
                stream = named(stream.key_by(of_pair).map(Marked()), "marked")
            elif stage == "buffered":
                stream = named(stream.map(self.buffered()), "buffered")
            else:
                stream = named(stream.map(lambda pair: pair), "plain")
        totals = named(stream.key_by(of_pair).process(self.totals()), self.uid)
        named(totals.sink_to(FileSink(str(output), Encoder.simple_string_encoder())), "files")


@dataclass(frozen=True)
class Reduced(Version):
    """The same totals by reduce() on a typed stream, whose rows may have the field more."""

    more: bool = False

    def build(self, env: StreamExecutionEnvironment, tap: Tap, output: Any) -> None:
        names, types, defaults = ["key", "total"], [Types.STRING(), Types.LONG()], {}
        if self.more:
            names, types = [*names, "currency"], [*types, Types.STRING()]
            defaults = {"currency": "EUR"}

        def row(pair):
            return Row(*pair, "USD") if self.more else Row(*pair)

        def added(one, other):
            one["total"] += other.total
            return one

        rows = env.from_source(tap).uid("source").map(row, Types.ROW_NAMED(names, types, defaults))
        reduced = rows.key_by(lambda row: row.key).reduce(added).uid("totals")
        lines = reduced.map(lambda row: ",".join(map(str, row)), Types.STRING())
        lines.sink_to(FileSink(str(output), Encoder.simple_string_encoder())).uid("files")


class _Planned(Exception):
    pass


class _Planning(MiniExecutor):
    def submit(self, graph, settings, replan=None):
        raise _Planned(graph)


class Life:
    """One job over its versions."""

    def __init__(self, directory: Any) -> None:
        self.tap = Tap(RECORDS)
        self.directory = directory
        self.path = ""

    def start(self, version: Version, **settings: Any) -> Any:
        env = self._environment(version, MiniExecutor(version.parallelism), settings)
        version.build(env, self.tap, self.directory / "out")
        return env.execute_async("totals")

    def _environment(self, version: Version, executor: Any, settings: Any = None) -> Any:
        every = {EVERY: "50 ms", **version.settings, **(settings or {})}
        return StreamExecutionEnvironment(every, executor)

    def stop(self, version: Version, format: SavepointFormat = SavepointFormat.CANONICAL) -> None:
        """Run a version up to the middle, then stop it with a savepoint."""
        job = self.start(version)
        self.tap.let_pass(STOP)
        where = str(self.directory / "savepoints")
        self.path = job.stop_with_savepoint(False, where, format).result(PATIENCE)
        job.wait(PATIENCE)

    def cancel(self, version: Version) -> None:
        """Run a version up to the middle, then cancel it; its last checkpoint stays."""
        where = self.directory / "checkpoints"
        keep = "execution.checkpointing.externalized-checkpoint-retention"
        settings = {"execution.checkpointing.dir": str(where), keep: "RETAIN_ON_CANCELLATION"}
        job = self.start(version, **settings)
        self.tap.let_pass(STOP)
        job.trigger_checkpoint().result(PATIENCE)
        job.cancel_and_wait()
        [self.path] = [str(path) for path in where.iterdir()]

    def plan(self, version: Version) -> UpgradePlan:
        env = self._environment(version, _Planning(version.parallelism))
        version.build(env, self.tap, self.directory / "out")
        with pytest.raises(_Planned) as planned:
            env.execute_async("totals")
        return plan_upgrade(open_checkpoint(self.path).metadata, planned.value.args[0])

    def go_on(self, version: Version, **settings: Any) -> list[str]:
        """Run a version from there to the end; everything that was ever written."""
        self.tap.open()
        job = self.start(version, **{"execution.state-recovery.path": self.path, **settings})
        job.wait(PATIENCE)
        return self.lines()

    def refused(self, version: Version, error: type[TidegateError], **settings: Any) -> str:
        """Why a version does not start from there; nothing is written."""
        before = self.lines()
        with pytest.raises(error) as failure:
            self.go_on(version, **settings)
        assert self.lines() == before
        return str(failure.value)

    def lines(self) -> list[str]:
        found = (self.directory / "out").glob("part-*")
        return sorted(line for file in found for line in file.read_text().splitlines())


@pytest.fixture
def life(tmp_path):
    return Life(tmp_path)


def lines_of(line: Callable[[str, int], str], records=RECORDS) -> list[str]:
    totals: dict[str, int] = {}
    lines = []
    for key, number in records:
        totals[key] = totals.get(key, 0) + number
        lines.append(line(key, totals[key]))
    return sorted(lines)


UNDISTURBED = lines_of(lambda key, total: f"{key},{total}")


def fates(plan, uid):
    [operator] = [o for o in plan.operators if o.uid == uid]
    return operator.fate, {state.name: state.fate for state in operator.states}


def test_the_model_of_an_undisturbed_run_is_right(life):
    life.tap.open()
    life.start(Version()).wait(PATIENCE)
    assert life.lines() == UNDISTURBED


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["marked", "buffered", "plain"])
def test_an_operator_is_added(stage, life):
    life.stop(Version())
    new = Version(before=(stage,))
    plan = life.plan(new)
    assert plan.fits()
    assert fates(plan, stage)[0] is StateFate.NEW
    assert fates(plan, "totals") == (StateFate.RESTORED, {"account": StateFate.RESTORED})
    assert life.go_on(new) == UNDISTURBED


def test_a_stateless_operator_is_removed_without_asking(life):
    life.stop(Version(before=("plain",)))
    assert life.plan(Version()).fits()
    assert life.go_on(Version()) == UNDISTURBED


def test_an_operator_with_state_is_removed_only_if_that_is_allowed(life):
    life.stop(Version(before=("marked",)))
    plan = life.plan(Version())
    assert fates(plan, "marked") == (StateFate.DROPPED, {"seen": StateFate.DROPPED})
    assert not plan.fits()
    assert plan.bytes_not_restored > 0
    said = life.refused(Version(), StateNotClaimed)
    assert "uid marked" in said
    assert "ignore-unclaimed-state" in said
    assert plan.fits(allow_non_restored=True)
    assert life.go_on(Version(), **LEAVE) == UNDISTURBED


def test_another_uid_is_another_operator(life):
    life.stop(Version())
    plan = life.plan(Version(uid="others"))
    assert not plan.fits()
    assert plan.fits(allow_non_restored=True)
    assert "uid totals" in life.refused(Version(uid="others"), StateNotClaimed)
    rest = lines_of(lambda key, total: f"{key},{total}", RECORDS[STOP:])
    first = lines_of(lambda key, total: f"{key},{total}", RECORDS[:STOP])
    assert life.go_on(Version(uid="others"), **LEAVE) == sorted(first + rest)


def test_operators_change_their_order(life):
    life.stop(Version(before=("marked", "buffered", "plain")))
    new = Version(before=("plain", "buffered", "marked"))
    plan = life.plan(new)
    assert plan.fits()
    assert fates(plan, "marked") == (StateFate.RESTORED, {"seen": StateFate.RESTORED})
    assert fates(plan, "buffered") == (StateFate.RESTORED, {"seen": StateFate.RESTORED})
    assert life.go_on(new) == UNDISTURBED


@pytest.mark.parametrize("chaining", [False, True])
def test_operators_are_chained_in_another_way(chaining, life):
    stages = ("buffered", "plain")
    life.stop(Version(before=stages, chaining=chaining))
    new = Version(before=stages, chaining=not chaining)
    assert life.plan(new).fits()
    assert life.go_on(new) == UNDISTURBED


def test_without_uids_the_same_program_continues(life):
    version = Version(before=("marked",), uids=False)
    life.stop(version)
    assert life.plan(version).fits()
    assert life.go_on(version) == UNDISTURBED


def test_without_uids_a_changed_graph_does_not_find_its_state(life):
    life.stop(Version(uids=False))
    new = Version(before=("marked",), uids=False)
    assert not life.plan(new).fits()
    life.refused(new, StateNotClaimed)


# --- states ---------------------------------------------------------------------------------------


def test_a_state_is_added(life):
    life.stop(Version())
    new = Version(totals=Counted)
    plan = life.plan(new)
    assert plan.fits()
    assert fates(plan, "totals")[1] == {"account": StateFate.RESTORED, "count": StateFate.NEW}
    assert life.go_on(new) == UNDISTURBED


@pytest.mark.parametrize("settings", [{}, LEAVE], ids=["", "allowed"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_state_is_dropped(backend, settings, life):
    chosen = {"state.backend.type": backend}
    life.stop(Version(totals=Counted, settings=chosen))
    new = Version(settings=chosen)
    plan = life.plan(new)
    assert plan.fits()
    assert fates(plan, "totals")[1] == {"account": StateFate.RESTORED, "count": StateFate.DROPPED}
    [totals] = [o for o in plan.operators if o.uid == "totals"]
    assert totals.remarks == (
        "state 'count' is no longer declared: it stays in savepoints, unused",
    )
    assert life.go_on(new, **settings) == UNDISTURBED


# --- a field more ---------------------------------------------------------------------------------

FORMATS = [SavepointFormat.CANONICAL, SavepointFormat.NATIVE]


def accounts_after(seen):
    """What is written if the rows of `seen` records had no currency when they were made."""
    known = {key for key, _ in RECORDS[:seen]}
    assert known < {key for key, _ in RECORDS}
    first = lines_of(lambda key, total: f"{key},{total}", RECORDS[:seen])
    every = []
    totals: dict[str, int] = {}
    for place, (key, number) in enumerate(RECORDS):
        totals[key] = totals.get(key, 0) + number
        if place >= seen:
            every.append(f"{key},{totals[key]},{'EUR' if key in known else 'USD'}")
    return sorted(first + every)


@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_field_is_added_to_a_row(backend, format, parallelism, life):
    chosen = {"state.backend.type": backend}
    life.stop(Version(settings=chosen), format)
    new = Version(totals=Accounts, settings=chosen, parallelism=parallelism)
    plan = life.plan(new)
    assert plan.fits()
    [totals] = [o for o in plan.operators if o.uid == "totals"]
    [state] = totals.states
    assert (state.fate, state.added) == (StateFate.CONVERTED, ("currency = 'EUR'",))
    assert life.go_on(new) == accounts_after(STOP)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_field_is_added_to_a_row_of_a_retained_checkpoint(backend, life):
    chosen = {"state.backend.type": backend}
    life.cancel(Version(settings=chosen))
    new = Version(totals=Accounts, settings=chosen)
    assert fates(life.plan(new), "totals")[1] == {"account": StateFate.CONVERTED}
    assert life.go_on(new) == accounts_after(STOP)


def test_a_field_is_added_to_the_rows_that_a_stream_is_reduced_to(life):
    life.stop(Reduced())
    new = Reduced(more=True)
    plan = life.plan(new)
    assert plan.fits()
    assert fates(plan, "totals")[1] == {"_reduced": StateFate.CONVERTED}
    assert life.go_on(new) == accounts_after(STOP)


def test_a_field_is_added_to_rows_of_operator_state(life):
    life.stop(Version(before=("buffered",)))
    new = Version(before=("buffered",), buffered=BufferedMore)
    plan = life.plan(new)
    assert plan.fits()
    assert fates(plan, "buffered")[1] == {"seen": StateFate.CONVERTED}
    assert life.go_on(new) == UNDISTURBED


@pytest.mark.parametrize("settings", [{}, LEAVE], ids=["", "allowed"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_field_that_is_gone_is_refused_with_its_name(backend, settings, life):
    chosen = {"state.backend.type": backend}
    life.stop(Version(settings=chosen))
    new = Version(totals=WithoutTotal, settings=chosen)
    plan = life.plan(new)
    assert fates(plan, "totals")[1] == {"account": StateFate.CHANGED}
    assert not plan.fits(allow_non_restored=True)
    said = life.refused(new, StateTypeChanged, **settings)
    assert "field 'total' is gone, and 'sum' is new" in said
    assert plan.obstacles == (f"'KEYED PROCESS': {said}",)


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("totals", [Totals, Accounts])
@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("backends", [("hashmap", "rocksdb"), ("rocksdb", "hashmap")])
def test_the_state_backend_is_changed(backends, format, totals, life):
    before, after = ({"state.backend.type": backend} for backend in backends)
    life.stop(Version(settings=before), format)
    new = Version(totals=totals, settings=after)
    assert life.plan(new).fits()
    assert life.go_on(new) == (UNDISTURBED if totals is Totals else accounts_after(STOP))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_parallelism_is_changed(parallelism, life):
    life.stop(Version())
    new = Version(parallelism=parallelism)
    assert life.plan(new).fits()
    assert life.go_on(new) == UNDISTURBED


@pytest.mark.parametrize("settings", [{}, LEAVE], ids=["", "allowed"])
def test_another_max_parallelism_is_refused_with_the_reason(settings, life):
    life.stop(Version())
    new = Version(max_parallelism=64)
    plan = life.plan(new)
    assert not plan.fits(allow_non_restored=True)
    [reason] = plan.obstacles
    assert "max parallelism of 128, but the job sets 64" in reason
    said = life.refused(new, StateMisuse, **settings)
    assert "max parallelism of 128, but the job has 64" in said


def test_a_parallelism_above_the_max_parallelism_is_refused(life):
    life.stop(Version())
    new = Version(parallelism=130)
    plan = life.plan(new)
    assert any("130 subtasks, but its max parallelism is 128" in r for r in plan.obstacles)
