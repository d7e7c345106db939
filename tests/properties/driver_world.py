"""Successive drivers on one directory, and an external system to which they commit."""

from __future__ import annotations

import json
import queue
import random
import threading
from contextlib import suppress

from tests.checkpoint_store_contract import metadata_of, own, shared, snapshot_of
from tests.memory_store import MemoryStore
from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.layout import METADATA, directory_of, published
from tidegate.checkpoint.metadata import decode
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.errors import DirectoryTaken, StorageError
from tidegate.core.ids import CheckpointId
from tidegate.core.workers import Threads
from tidegate.driver.checkpoints.store_thread import PublicationSettled, StoreThread
from tidegate.protocol.checkpoints.instructions import (
    Publish,
)
from tidegate.state.pointers import FileScope, path_of
from tidegate.stream.elements import Barrier

RECORDS = 5
PATIENCE = 60.0


class Outside:
    """Keeps prepared transactions until anyone commits or aborts them."""

    def __init__(self) -> None:
        self.prepared: dict[str, range] = {}
        self.committed: dict[str, range] = {}

    def commit(self, names: list[str]) -> None:
        for name in names:
            if name not in self.committed:
                assert name in self.prepared, f"{name} was aborted and has to be committed"
                records = self.prepared.pop(name)
                assert not set(records) & self.records, f"{name} repeats what is committed"
                self.committed[name] = records

    def keep(self, names: list[str]) -> None:
        """Abort all others."""
        self.prepared = {name: self.prepared[name] for name in names if name in self.prepared}

    @property
    def records(self) -> set[int]:
        return {record for records in self.committed.values() for record in records}


class SeenStore(MemoryStore):
    """The directory as one driver sees it: others may act before each of its calls."""

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._blobs = driver.world.directory._blobs
        self._driver = driver

    def _blob(self, path):
        self._driver.pause()
        return super()._blob(path)

    def exists(self, path):
        self._driver.pause()
        return super().exists(path)

    def list(self, path=""):
        self._driver.pause()
        return super().list(path)

    def put(self, path, data):
        self._attempt(super().put, path, data)

    def create_if_absent(self, path, data):
        return self._attempt(super().create_if_absent, path, data)

    def delete(self, path):
        self._attempt(super().delete, path)

    def _attempt(self, write, *arguments):
        """Write; it may take effect even if it seems to fail."""
        world = self._driver.world
        self._driver.pause(world.haste_to_write)
        fails = world.chance(world.trouble)
        if not fails or world.chance(0.5):
            answer = write(*arguments)
            world.check_files()
        if fails:
            raise StorageError(arguments[0], "no answer", "wait")
        return answer


class Driver:
    """Takes over a directory and reads the source to its end, with a checkpoint now and then."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.turn = threading.Semaphore(0)
        self.is_dead = False
        threading.Thread(target=self._live, daemon=True).start()

    def pause(self, haste: float = 0.0) -> None:
        """Let others act; a dead driver does nothing more."""
        self.world.choose_next(self, haste)
        if self.is_dead:
            raise DirectoryTaken("killed", 0)

    def _live(self) -> None:
        self.turn.acquire()
        try:
            # A job that loses its directory, or cannot claim it, fails whatever its strategy.
            with suppress(DirectoryTaken, StorageError):
                self._run()
        except BaseException as error:
            self.world.failure = self.world.failure or error
        finally:
            self.world.ended(self)

    def _run(self) -> None:
        self._blobs = SeenStore(self)
        self._store = CheckpointStore(self._blobs)
        self._store.clean_leftovers()
        self._completed = list(self._store.retained().checkpoints)
        self._settled: queue.SimpleQueue[PublicationSettled] = queue.SimpleQueue()
        self._publisher = StoreThread(self._store, PATIENCE)
        self._publisher.start(self._settled.put, Threads())
        try:
            self._restart()
            while self._position < RECORDS or self._pending:
                try:
                    self._checkpoint()
                except StorageError:
                    self._restart()
        finally:
            self._publisher.close()

    def _restart(self) -> None:
        """Open everything from the latest checkpoint."""
        self._position, self._pending = 0, []
        self.pause(0.5)  # long enough, at times, for another driver to take the directory
        if self._completed:
            latest = self._completed[-1]
            place = path_of(latest.file_segments[0].file, directory_of(latest.checkpoint_id))
            self._position, self._pending = json.loads(self._blobs.read(place))
        self._store.ownership.check(self._blobs)
        self.world.outside.commit(self._pending)
        self.world.outside.keep(self._pending)
        self._pending = []

    def _checkpoint(self) -> None:
        number = CheckpointId(self._store.highest_id + 1)
        base = self._completed[-1] if self._completed else None
        self._store.begin(number, None if base is None else base.checkpoint_id)
        self.pause()
        name = f"{self.name}-{number}"
        start, self._position = self._position, min(self._position + 1, RECORDS)
        self.world.outside.prepared[name] = range(start, self._position)
        self._pending.append(name)
        state = shared(name) if self.world.chance(0.5) else own(name)
        content = json.dumps([self._position, self._pending]).encode()
        self._blobs.put(path_of(state, directory_of(number)), content)
        earlier = [] if base is None else [base.file_segments[0].file]
        metadata = metadata_of(number, state, *(f for f in earlier if f.scope is FileScope.SHARED))
        self._publisher.carry_out(Publish(Checkpoint(metadata, None), Barrier(number, 0.0)))
        if (error := self._settled.get(timeout=PATIENCE).error) is not None:
            with suppress(StorageError):
                self._store.abandon(number, [snapshot_of(*metadata.files)])
            if isinstance(error, DirectoryTaken) or self.world.chance(0.5):
                raise error
            return
        self._completed.append(metadata)
        self.world.completed.add(number)
        self.pause()
        self.world.outside.commit(self._pending)
        self._pending = []
        while len(self._completed) > self.world.retained:
            with suppress(StorageError):
                self._store.discard(self._completed.pop(0).checkpoint_id)
        if self.world.chance(0.2):
            self._restart()


class World:
    """One driver acts at a time; before each call of the store, chance decides who is next."""

    def __init__(self, drivers: int, seed: int) -> None:
        self._random = random.Random(seed)
        self.directory = MemoryStore()
        self.outside = Outside()
        self.completed: set[CheckpointId] = set()
        self.failure: BaseException | None = None
        self.retained = self._random.choice([1, 2])
        self.trouble = self._random.choice([0.0, 0.05, 0.15])
        self._haste = self._random.choice([0.01, 0.05, 0.3])
        self.haste_to_write = self._random.choice([0.0, 0.1, 0.3])
        """What happens between a check and the following action matters most."""
        self._mortality = self._random.choice([0.0, 0.01])
        self._has_stopped = threading.Semaphore(0)
        self._living = [Driver(self, f"driver-{number}") for number in range(drivers)]

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def run(self) -> None:
        """Run until every record is committed, if need be by a last, undisturbed driver."""
        self._until_all_have_ended()
        self.trouble = self._mortality = 0.0
        self._living = [Driver(self, "last")]
        self._until_all_have_ended()
        assert self.outside.records == set(range(RECORDS))
        assert not self.outside.prepared

    def _until_all_have_ended(self) -> None:
        self._living[0].turn.release()
        assert self._has_stopped.acquire(timeout=PATIENCE)
        if self.failure is not None:
            raise self.failure

    def choose_next(self, driver: Driver, haste: float) -> None:
        driver.is_dead = driver.is_dead or self.failure is not None or self.chance(self._mortality)
        if not driver.is_dead and self.chance(max(haste, self._haste)):
            chosen = self._random.choice(self._living)
            if chosen is not driver:
                chosen.turn.release()
                driver.turn.acquire()

    def ended(self, driver: Driver) -> None:
        self._living.remove(driver)
        if self._living:
            self._random.choice(self._living).turn.release()
        else:
            self._has_stopped.release()

    def check_files(self) -> None:
        """The latest checkpoint and all completed before it have all their files."""
        present = set(self.directory.list())
        latest, *others = published(present) or [None]
        for number in {latest, *self.completed.intersection(others)} - {None}:
            place = directory_of(number)
            metadata = decode(self.directory.read(f"{place}/{METADATA}"), place)
            missing = {path_of(file, place) for file in metadata.files} - present
            if missing:
                self.failure = self.failure or AssertionError(f"{place} lacks {missing}")
