"""Invariants, checked after every relevant event and at the end of a run."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tests.sim.bank import Bank
from tests.sim.clockwork import Wrong
from tests.sim.cluster import SlotProcess
from tests.sim.plans import CHECKPOINTS
from tidegate.checkpoint.layout import METADATA, id_of
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord, decode
from tidegate.core.errors import (
    DirectoryTaken,
    TidegateError,
    TransactionLost,
    UserFunctionError,
)
from tidegate.core.ids import Address, CheckpointId, PipelineId
from tidegate.driver.checkpoints.store_thread import PublicationSettled
from tidegate.driver.job_master import JobMaster
from tidegate.protocol.checkpoints.pending import PendingState
from tidegate.protocol.messages import StepRequest
from tidegate.protocol.region import Region, RegionState
from tidegate.protocol.slot_machine import SlotPhase
from tidegate.state.pointers import path_of
from tidegate.stream.elements import BarrierKind

if TYPE_CHECKING:
    from tests.sim.drivers import DriverProcess
    from tests.sim.world import World

TIDY = {
    "kill a slot",
    "user code fails",
    "the bank fails",
    "steps break",
    "checkpoint",
    "savepoint",
    "rescale",
}
"""Faults after which nobody writes what nobody knows of."""
USER_FAILURE = "the user's code fails"
_LIVE = (RegionState.DEPLOYING, RegionState.RUNNING)


class Checks:
    """Raises `Wrong` as soon as an invariant is violated."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.program = world.plan.program
        self.is_exact = world.plan.mode == "EXACTLY_ONCE"
        self.published: dict[str, tuple[CheckpointMetadata, frozenset[str]]] = {}
        """The existing checkpoints and savepoints, with the files that they need."""
        self._positions = [[0] * len(each) for each in self.program.streams]
        self._acted: dict[tuple[int, int], int] = {}
        self._requests: dict[tuple[DriverProcess, PipelineId], StepRequest] = {}
        self._seen_publishing: set[tuple[int, CheckpointId]] = set()
        self._attempts: dict[tuple[int, PipelineId], int] = {}
        self._void: dict[str, list[tuple[int, int]]] = {}
        """Epochs of drivers, and checkpoints that do not count for them, by directory."""
        self._seen: dict[tuple[str, int | None], int] = {}
        """The driver that has found a checkpoint of a directory last: it counts."""
        self._unpublished: set[str] = set()
        """Checkpoints that their drivers take for not published."""

    # --- slots ------------------------------------------------------------------------------

    def left(self, process: SlotProcess) -> None:
        """Who leaves in peace aborts what it has begun."""
        if process.host._machine.is_exiting or self.program.sink not in ("function", "kafka"):
            return
        for bank in self.world.banks:
            begun = [each for each in bank.open if bank.owners[each] is process]
            if begun and not self.world.is_troubled("the bank"):
                raise Wrong(f"{process.name} leaves {begun} behind")

    def leased(self, process: SlotProcess) -> None:
        """No slot that has something to do trusts its lease longer than its driver does."""
        master = self._master()
        machine = process.host._machine
        is_registered = machine._phase is SlotPhase.REGISTERED
        if master is None or not is_registered or not process.host._pipelines:
            return
        until = (machine._leased_until - 1000) / process.speed
        slot = master._slots.pool._slots.get(process.incarnation.slot)
        known = 0.0
        if slot is not None and slot.current == process.incarnation:
            known = slot.leased_until
        elif slot is not None:
            known = slot.old_leases.get(process.incarnation, 0.0)
        if until > max(self.world.sim.now, (known - 1000) / process.cluster.driver.speed):
            raise Wrong(f"{process.name} trusts a lease that its driver does not know of")

    def acts(self, process: SlotProcess, what: str) -> None:
        """No process acts next to the one that replaced it."""
        place = id(process.cluster), process.incarnation.slot
        newest = self._acted.get(place, -1)
        if process.number < newest:
            raise Wrong(f"{process.name} does {what!r} although {newest} serves its slot")
        self._acted[place] = process.number

    def opens_reader(self, pipeline: int, subtask: int) -> None:
        """The source of an ended subtask is not opened again."""
        master = self._master()
        point = None if master is None else master.checkpoints.retained.restore_point
        if point is None or master is None:
            return
        record = _record(point.metadata, f"source {pipeline}")
        width = master._graph.slots
        if record is not None and record.parallelism == width and subtask in record.finished:
            raise Wrong(f"source {pipeline} ({subtask}) had ended and is opened again")

    def reads(self) -> None:
        """Nothing is read after the barrier of a stop."""
        master = self._master()
        if master is not None and master.checkpoints.retained.stop_point is not None:
            raise Wrong("a source reads on after the job has stopped")

    def prepares(self, pipeline: int) -> tuple[int, int]:
        return self.attempt_of(self._master(), pipeline)

    def _master(self) -> JobMaster | None:
        """The master of the current slot."""
        process = self.world.sim.current
        assert isinstance(process, SlotProcess)
        driver: Any = process.cluster.driver
        return driver.master if driver.cluster is process.cluster else None

    # --- steps ------------------------------------------------------------------------------

    def steps(self, driver: Any, request: StepRequest, addresses: Sequence[Address | None]) -> None:
        """A repeated step asks for the same; slots have opened what they are asked for."""
        before = self._requests.get((driver, request.pipeline))
        if before is not None and (before.attempt, before.step) == (request.attempt, request.step):
            same = before.barriers == request.barriers
            if not same or before.assignments != request.assignments:
                raise Wrong(f"step {request.step} is repeated with another request")
        self._requests[driver, request.pipeline] = request
        region = driver.master._regions[request.pipeline]
        goes_on = region.state in (RegionState.DEPLOYING, RegionState.RUNNING)
        if region.attempt != request.attempt or not goes_on:
            return  # its thread is late, and slots refuse it
        for address in addresses:
            process = None if address is None else self.world.slots[address.port]
            if process is None or process.cluster.driver is not driver or process.has_left:
                continue
            machine = process.host._machine
            if process.is_alive and not machine.is_exiting:
                opened = machine._open.get(request.pipeline)
                if opened is None or opened < request.attempt:
                    raise Wrong(f"{process.name} is sent a step of what it has not opened")

    def served(self, serve_pump: Callable[..., None]) -> Callable[..., None]:
        """A slot serves the pumps of the latest job alone."""

        def serve(lines: Any, connection: Any, level: int) -> None:
            self.world.moment("a pump is let in")
            given, wanted = connection.other.epoch, lines._job.epoch
            if given != wanted:
                raise Wrong(f"a pump of job {given} is let into job {wanted}")
            serve_pump(lines, connection, level)

        return serve

    # --- drivers ----------------------------------------------------------------------------

    def watch(self, master: JobMaster) -> None:
        """Check each event that it handles, and each failure that ends it."""
        self._requests.clear()
        handle: Callable[[Any], None] = master._handle
        fail: Callable[..., None] = master._fail

        def checked(event: Any) -> None:
            if isinstance(event, PublicationSettled):
                self._settled(master, event)
            self._failed(getattr(event, "message", event))
            stale = _stale_region(master, event)
            if stale is None:
                handle(event)
                self._publishing(master)
                return
            before = stale.state, stale.attempt, stale.step_in_flight
            handle(event)
            if (stale.state, stale.attempt, stale.step_in_flight) != before:
                name = type(getattr(event, "message", event)).__name__
                raise Wrong(f"{name} of an older attempt changes pipeline {stale.pipeline}")

        def failing(cause: TidegateError, pipelines: tuple[PipelineId, ...] = ()) -> None:
            opening = any(r.state is RegionState.DEPLOYING for r in master._regions.values())
            goes_on = bool(master.checkpoints.home.retained) or master.has_started
            if isinstance(cause, UserFunctionError) and opening and goes_on:
                raise Wrong(f"the job gives up what may come back: {cause}")
            fail(cause, pipelines)

        master._handle = checked  # type: ignore[method-assign]
        master._fail = failing  # type: ignore[method-assign]

    def _failed(self, message: Any) -> None:
        """A connector fails with an error of ours, and says that something is lost if it is."""
        for error in (getattr(message, "error", None), getattr(message, "failure", None)):
            if error is not None:
                self.world.sim.note(f"    {type(error).__name__}: {str(error)[-200:]}")
            if isinstance(error, TransactionLost):
                if not any(bank.is_lost(error.args[1]) for bank in self.world.banks):
                    raise Wrong(f"it is not lost: {error}")
                self.world.tells_of_loss = True
            is_own = isinstance(error, UserFunctionError) and self.program.has_server
            if is_own and USER_FAILURE not in str(error):
                raise Wrong(f"the sink fails with {error}")

    def _settled(self, master: JobMaster, event: PublicationSettled) -> None:
        """A checkpoint that counts as not published does not exist."""
        metadata = f"{event.checkpoint.url}/{METADATA}"
        is_own = event.checkpoint.metadata.kind is BarrierKind.CHECKPOINT
        is_known = not isinstance(event.error, DirectoryTaken) and is_own
        if event.error is None or not is_known or master.checkpoints._is_hurried:
            return
        if metadata in self.world.bucket.blobs and not self._is_void(event.checkpoint.url):
            raise Wrong(f"{metadata} is taken for not published: {event.error}")
        self._unpublished.add(metadata)

    def _publishing(self, master: JobMaster) -> None:
        """What is published was acknowledged by running subtasks."""
        regions = master._regions
        for number, pending in master.checkpoints.coordinator._pending.items():
            key = id(master), number
            if pending.state is not PendingState.PUBLISHING or key in self._seen_publishing:
                continue
            self._seen_publishing.add(key)
            vertices = master._graph.vertices
            for subtask, attempt in pending.plan.awaited.items():
                region = regions[vertices[subtask.vertex].pipeline]
                if region.attempt != attempt or region.state not in (
                    RegionState.RUNNING,
                    RegionState.FINISHED,
                ):
                    raise Wrong(f"checkpoint {number} is published after a part of it has failed")

    def after_turn(self, master: JobMaster) -> None:
        """Nothing is restored before the last checkpoint is known."""
        coordinator = master.checkpoints.coordinator
        for pipeline, region in master._regions.items():
            key = id(master), pipeline
            is_new = self._attempts.get(key) != region.attempt
            self._attempts[key] = region.attempt
            is_deployed = is_new and region.state in _LIVE
            if is_deployed and not master.checkpoints._is_hurried and coordinator.is_publishing:
                raise Wrong(f"pipeline {pipeline} is restored before a publication is settled")

    def all_answered(self, driver: DriverProcess) -> None:
        """Every request is answered."""
        for kind, order in driver.orders:
            if not order.answer.done():
                raise Wrong(f"a request for a {kind} is not answered")

    def all_closed(self, driver: DriverProcess) -> None:
        """Nothing of an ended job is still open."""
        for slot in self.world.slots:
            is_current = driver.cluster._running.get(slot.incarnation.slot) is slot
            if is_current and not slot.is_cut and hasattr(slot, "host"):
                if slot.host._machine.is_exiting:
                    continue
                if any(hosted._host is not None for hosted in slot.host._pipelines.values()):
                    raise Wrong(f"{slot.name} is still open when its job has ended")

    # --- storage ----------------------------------------------------------------------------

    def stored(self, what: str, where: str, outcome: Any) -> None:
        directory, _, name = where.rpartition("/")
        if what == "create" and outcome and name == METADATA:
            if not self._is_void(directory):
                self._publish(where)
        elif what == "put" and name.startswith(("closed-", "void-")):
            epoch, *ids = map(int, name.split("-")[1:])
            void = self._void.setdefault(directory, [])
            if name.startswith("closed-"):
                seen = directory, ids[0]
                self._seen[seen] = max(epoch, self._seen.get(seen, 0))
                ids[0] += 1
            void += [(epoch, each) for each in range(ids[0], ids[-1] + 1)]
            for path in [path for path in self.published if self._is_void(path.rpartition("/")[0])]:
                del self.published[path]
        elif what == "delete":
            blobs = self.world.bucket.blobs
            gone = [path for path in self.published if path not in blobs]
            for path in gone:
                del self.published[path]
            self._check_files()
            self._check_kept(gone)

    def appears(self, where: str) -> None:
        """A checkpoint that is created late counts, unless its driver does not expect it."""
        directory, _, name = where.rpartition("/")
        if name != METADATA or not where.startswith(CHECKPOINTS) or self._is_void(directory):
            return
        if where in self._unpublished:
            raise Wrong(f"{where} was taken for not published, and appears")
        self._publish(where)

    def _is_void(self, checkpoint: str) -> bool:
        """Whether it comes so late that the next driver goes on without it."""
        directory, _, name = checkpoint.rpartition("/")
        number = id_of(name)
        seen_by = self._seen.get((directory, number), 0)
        return any(seen_by <= by for by, each in self._void.get(directory, ()) if each == number)

    def _check_kept(self, deleted: list[str]) -> None:
        """A job that continues does not delete its last checkpoint."""
        master: JobMaster | None = getattr(self.world.sim.current, "master", None)
        if not deleted or master is None or master._is_ending:
            return
        if master.checkpoints.retained.stop_point is not None:
            return
        directory = f"{master.checkpoints.home.directory}/"
        is_over = all(region.state.is_terminal for region in master._regions.values())
        was_own = any(path.startswith(directory) for path in deleted)
        if was_own and not is_over and not any(p.startswith(directory) for p in self.published):
            raise Wrong(f"the job has deleted its last checkpoint: {deleted}")

    def removes(self, directory: str) -> None:
        """A job deletes its files before it removes its directory."""
        world = self.world
        if {fault.kind for fault in world.plan.faults} <= TIDY and len(world.drivers) == 1:
            left = [path for path in world.bucket.blobs if path.startswith(f"{directory}/chk-")]
            if left:
                raise Wrong(f"nobody has deleted {left}")

    def _publish(self, where: str) -> None:
        metadata = decode(self.world.bucket.blobs[where], where)
        directory, _, name = where.removesuffix(f"/{METADATA}").rpartition("/")
        files = frozenset(f"{directory}/{path_of(file, name)}" for file in metadata.files)
        self.published[where] = metadata, files
        self._check_files()
        is_answered = self.world.sim.current is not None
        if is_answered and sum(driver.is_alive for driver in self.world.drivers) == 1:
            self._check_covered(where, metadata)
        for number, positions in enumerate(self._positions):
            for stream, position in enumerate(self.positions_in(metadata, number)):
                positions[stream] = max(positions[stream], position)

    def _check_files(self) -> None:
        for where, (_, files) in self.published.items():
            for path in files:
                if path not in self.world.bucket.blobs:
                    raise Wrong(f"{where} lacks {path}")

    def _check_covered(self, where: str, metadata: CheckpointMetadata) -> None:
        """What a checkpoint has read is visible, prepared, or in its state."""
        for number, bank in enumerate(self.world.banks):
            limits = self.positions_in(metadata, number)
            lost = set(self.program.certain(number, limits)) - self._shown(bank, bank.settled)
            if lost:
                raise Wrong(f"{where} is past {sorted(lost)[:5]}, which no sink has prepared")
            if not self.program.held_by(number):
                self._check_nothing_more(where, metadata, bank, limits)

    def _shown(self, bank: Bank, results: Iterable[Any]) -> set[Any]:
        """The records behind results; in event time, each result stands for itself."""
        if self.program.is_timed(bank.pipeline):
            return set(results)
        return {result[:2] for result in results}

    def _unfounded(self, bank: Bank, results: Iterable[Any], limits: Sequence[int]) -> list[Any]:
        """Results of records that were not read up to these positions."""
        if self.program.is_timed(bank.pipeline):
            found = self.program.expected(bank.pipeline, limits)
            return [each for each in results if each not in found]
        return [r for r in results if r[0] != "timer" and r[1] >= limits[r[0]]]

    def _check_nothing_more(
        self, where: str, metadata: CheckpointMetadata, bank: Bank, limits: Sequence[int]
    ) -> None:
        """What is prepared does not exceed the last checkpoint."""
        driver: Any = self.world.sim.current
        # A later one may have been aborted: what it has prepared waits for the next.
        last = driver.master.checkpoints.coordinator._next_id - 1
        if not self.is_exact or last > metadata.checkpoint_id:
            return
        if metadata.kind is BarrierKind.SAVEPOINT:
            return  # it waits for the next checkpoint
        for transaction, records in bank.prepared.items():
            if bank.prepared_by[transaction] == self.attempt_of(driver.master, bank.pipeline):
                more = self._unfounded(bank, records, limits)
                if more:
                    raise Wrong(f"{transaction} of {where} has {more[:5]} from behind the barrier")

    def attempt_of(self, master: JobMaster | None, pipeline: int) -> tuple[int, int]:
        """Identifies the attempt of transactions."""
        attempt = 0 if master is None else master._regions[PipelineId(pipeline)].attempt
        return id(master), attempt

    def positions_in(self, metadata: CheckpointMetadata, pipeline: int) -> list[int]:
        """The read position of each stream; readers do not report streams they have finished."""
        record = _record(metadata, f"source {pipeline}")
        lengths = self._lengths(pipeline)
        if record is None:
            return list(lengths)  # it has finished
        given = len(lengths) if len(record.finished) == record.parallelism else 0
        if record.enumerator is not None:
            given = pickle.loads(record.enumerator)
        positions = [length if stream < given else 0 for stream, length in enumerate(lengths)]
        for handle in record.subtasks.values():
            for stored in map(pickle.loads, handle.source_splits):
                split = getattr(stored, "split", stored)
                if split.stream >= given:
                    raise Wrong(f"nobody has assigned stream {split.stream} to its reader")
                positions[split.stream] = split.position
        return positions

    def _lengths(self, pipeline: int) -> Sequence[int]:
        """Where streams end: if the job was drained, all of them ended then, for good."""
        return (self.world.drained or self.program.streams)[pipeline]

    # --- what becomes visible -----------------------------------------------------------------

    def commits(self, bank: Bank, transaction: str, records: Sequence[Any]) -> None:
        """There is no commit without its checkpoint, and nothing is committed twice."""
        positions = self._positions[bank.pipeline]
        seen = Counter(records)
        if not self.is_exact:
            return
        if unfounded := self._unfounded(bank, records, positions):
            raise Wrong(f"{transaction} is committed with {unfounded[:5]} without a checkpoint")
        for record in records:
            if seen[record] > 1 or bank.visible[record]:
                raise Wrong(f"{transaction} repeats {record}")

    def results(self) -> None:
        """Every record and timer is visible as often as it should be; nothing is left over."""
        world = self.world
        for number, bank in enumerate(world.banks):
            records = self._results_of(bank)
            expected = self.program.expected(number, self._lengths(number))
            found = records if self.is_exact else Counter(set(records))
            _same(f"pipeline {number}", found, expected)
            if number == 0 and self.is_exact and not self.program.is_timed(number):
                self._check_counts(bank, expected, is_drained=world.drained is not None)
            rivals = {"start a rival", "put the driver to sleep"}
            has_rivals = any(fault.kind in rivals for fault in world.plan.faults)
            is_same_job = self.program.sink == "committer" or world.is_one_job
            left = {**bank.prepared, **(bank.open if self.program.has_server else {})}
            if is_same_job and self.program.sink != "function" and left and not has_rivals:
                raise Wrong(f"nobody settles {sorted(left)}")
        left = [path for path in world.bucket.blobs if path.startswith(CHECKPOINTS)]
        # Files that are written late or could not be deleted are removed at the next start. What
        # cannot be read is left to the user.
        hung = any(driver.has_lost_patience for driver in world.drivers)
        troubled = hung or world.is_troubled("storage fails") or world.is_troubled("a byte")
        if left and world.origin == "latest" and len(world.drivers) == 1 and not troubled:
            raise Wrong(f"files are left: {left}")

    def resumed(self, savepoint: CheckpointMetadata) -> None:
        """A job started from a savepoint shows everything after it, once."""
        for number, bank in enumerate(self.world.banks):
            found, limits = self._results_of(bank), self.positions_in(savepoint, number)
            before = self.program.expected(number, limits)
            after = self.program.expected(number) - before
            if after - found or (self.is_exact and any(n > 1 for n in found.values())):
                raise Wrong(f"from a savepoint, pipeline {number} shows {found} of {after}")
            again = found.keys() & set(self.program.certain(number, limits))
            if self.program.is_timed(number) and again:
                raise Wrong(f"from a savepoint, pipeline {number} shows {again} again")
            is_timed = self.program.is_timed(number)
            if self.is_exact and not self.program.held_by(number) and not is_timed:
                _same(f"from a savepoint, pipeline {number}", found, after)

    def _results_of(self, bank: Bank) -> Counter[Any]:
        if self.program.is_timed(bank.pipeline):
            return Counter(bank.visible.elements())
        return Counter(r[:2] for r in bank.visible.elements() if r[0] != "timer")

    def _check_counts(self, bank: Bank, expected: Counter[Any], *, is_drained: bool) -> None:
        key_of, sets_timer = self.program.key_of, self.program.sets_timer
        by_key = Counter(key_of(record) for record in expected.elements())
        counts = Counter(r[2:] for r in bank.visible if r[0] != "timer")
        whole = Counter((key, n + 1) for key, size in by_key.items() for n in range(size))
        _same("the numbers by key", counts, whole)
        timers = Counter(r[1:] for r in bank.visible if r[0] == "timer")
        set_ = Counter(key_of(record) for record in expected.elements() if sets_timer(record))
        due = Counter((key, n + 1) for key, size in set_.items() for n in range(size))
        if is_drained:
            due &= timers
        _same("the timers", timers, due)


def savepoints_of(world: World) -> list[tuple[str, CheckpointMetadata]]:
    """The savepoints that users have received."""
    answers = [
        order.answer.result()
        for driver in world.drivers
        for kind, order in driver.orders
        if kind == "savepoint" and order.answer.done() and order.answer.exception() is None
    ]
    published = world.checks.published
    return [(path, published[f"{path}/{METADATA}"][0]) for path in answers]


def _stale_region(master: JobMaster, event: Any) -> Region | None:
    """The region of an event that belongs to another attempt."""
    about = getattr(event, "message", event)
    pipeline, attempt = getattr(about, "pipeline", None), getattr(about, "attempt", None)
    if pipeline is None or attempt is None:
        return None
    region = master._regions[pipeline]
    return None if region.attempt == attempt else region


def _record(metadata: CheckpointMetadata, uid: str) -> OperatorRecord | None:
    return next((each for each in metadata.operators.values() if each.uid == uid), None)


def _same(what: str, found: Counter[Any], expected: Counter[Any]) -> None:
    if found != expected:
        more, fewer = found - expected, expected - found
        raise Wrong(f"{what}: too many {sorted(more)[:5]}, missing {sorted(fewer)[:5]}")
