"""Runs a job on Spark: slots as long-running tasks, steps as short jobs."""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark import InheritableThread

from tidegate.core.clock import SystemClock
from tidegate.core.config import Settings
from tidegate.core.errors import (
    ExternalError,
    LineClosed,
    NotEnoughTaskSlots,
    UnsuitableSpark,
)
from tidegate.core.ids import JobId, SlotIndex
from tidegate.driver.checkpoints.home import CheckpointHome
from tidegate.driver.checkpoints.lifecycle import JobCheckpoints
from tidegate.driver.cluster import ClusterEvent, FromSlot, LineEnded, SlotJobEnded
from tidegate.driver.collectors import Collectors
from tidegate.driver.function_logs import level_for_slots
from tidegate.driver.job_handle import JobHandle, Replan
from tidegate.driver.job_master import JobMaster
from tidegate.driver.live_line import Console
from tidegate.exchange.cancellation import cancel_group
from tidegate.exchange.choice import create_exchange
from tidegate.exchange.pipelined.requirements import task_slots_for
from tidegate.graph.job_graph import JobGraph
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import DriverMessage, Register
from tidegate.slot.slot import SlotTask
from tidegate.storage.private_directory import PrivateDirectory
from tidegate.transport.control import ControlLine
from tidegate.transport.shipping import pack
from tidegate.transport.spark_errors import reason_of, spark_may_be_gone
from tidegate.transport.wire import Connection, Listener

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger("tidegate.spark")
_FAREWELL_SECONDS = 3.0
_REGISTRATION_SECONDS = 30.0
"""How long the executors of a cluster may take to register, as long as Spark itself would wait."""
_QUIET_SECONDS = 3.0
"""Executors register within some seconds of each other."""
_reserving = threading.Lock()
_reserved: weakref.WeakSet[SparkCluster] = weakref.WeakSet()
"""The jobs of this process that hold task slots; Spark only knows their total number."""


def submit(
    graph: JobGraph, context: SparkContext, settings: Settings, replan: Replan | None = None
) -> JobHandle:
    """Start a job; with `replan` it can be rescaled.

    Raises:
        NotEnoughTaskSlots: the master can never run it.
        UnsuitableSpark: a setting of the session would break slots.
        NotSerializable: part of the program cannot be sent to the slots.
        StorageError, CorruptCheckpoint, StateNotClaimed: the checkpoint directory or the checkpoint
            to resume from cannot be used.
    """
    clock = SystemClock()
    secret = secrets.token_bytes(32)
    collectors = Collectors()
    console = Console(settings.engine.live_line)

    def start(graph: JobGraph, predecessor: CheckpointHome | None) -> JobMaster:
        _check_session(context, graph.slots)
        checkpoints = JobCheckpoints.open(graph, settings, clock, predecessor)
        job_id = checkpoints.job_id

        def free() -> int:
            with _reserving:
                taken = _tasks_of_others(context)
            return registered_task_slots(context, taken + task_slots_for(graph)) - taken

        exchange, pumps = create_exchange(
            settings.engine.exchange, context, free, graph, job_id, secret
        )
        return JobMaster(
            pack(job_id, checkpoints.graph, settings.as_mapping()),
            settings,
            checkpoints,
            SparkCluster(context, job_id, graph.slots, pumps, secret, settings),
            exchange,
            clock,
            collectors.outputs(console),
        )

    def plan(parallelism: int) -> JobGraph:
        assert replan is not None
        wanted = replan(parallelism)
        _check_session(context, wanted.slots)
        return wanted

    return JobHandle(graph, start, collectors, console, None if replan is None else plan)


class SlotThread(InheritableThread):
    """Runs the Spark job of a slot and reports its end, even if it cannot start.

    PySpark asks the JVM for properties before it calls `run_slot`. That fails when files or threads
    are exhausted.
    """

    def __init__(
        self, name: str, run_slot: Callable[[], None], ended: Callable[[str], None]
    ) -> None:
        super().__init__(target=run_slot, name=name, daemon=True)
        self._ended = ended

    def start(self) -> None:
        try:
            super().start()
        except Exception as failure:
            self._ended(reason_of(failure))

    def run(self) -> None:
        reason = "it returned"
        try:
            super().run()
        except Exception as failure:
            reason = reason_of(failure)
        self._ended(reason)


class SparkCluster:
    """Runs each slot as a single-task Spark job, started from its own thread."""

    def __init__(
        self,
        context: SparkContext,
        job_id: JobId,
        slots: int,
        pumps: int,
        secret: bytes,
        settings: Settings,
    ) -> None:
        self._context = context
        self._slots = slots
        self._tasks = slots + pumps
        self._job_id = job_id
        self._secret = secret
        self._engine = settings.engine
        self._post: Callable[[ClusterEvent], None] = lambda event: None
        self._directory = PrivateDirectory("job")
        self._is_local = is_local(context)
        self._listener = Listener(
            unix_path=str(self._directory.path / "control.sock"),
            host=None if self._is_local else context.getConf().get("spark.driver.host"),
        )
        self._lines: dict[Incarnation, ControlLine] = {}
        self._jobs: dict[SlotIndex, threading.Thread] = {}
        self._groups: dict[SlotIndex, str] = {}
        """Of the last launch. No launch uses that of another: it may be canceled late."""
        self._is_closed = False

    def start(self, post: Callable[[ClusterEvent], None]) -> None:
        self._post = post
        self._listener.serve(self._secret, self._serve)

    def shortage(self) -> ExternalError | None:
        available = self._tasks + 1
        with spark_may_be_gone():
            available = task_slots(self._context)
        with _reserving:
            taken = _tasks_of_others(self._context, self)
            if available - taken > self._tasks:
                if not self._is_closed:
                    _reserved.add(self)
                return None
        master = master_of(self._context)
        if available <= self._tasks:
            return NotEnoughTaskSlots(master, available, self._tasks)
        return ExternalError(
            f"other jobs hold {taken} of the {available} task slots of the Spark master {master}, "
            f"and one must stay free for steps, so {self._tasks} more do not fit; wait for "
            "those jobs, lower the parallelism, or give Spark more cores"
        )

    def launch(self, slot: SlotIndex, number: int) -> None:
        task = SlotTask(
            slot=slot,
            launch=number,
            control=self._listener.address,
            secret=self._secret,
            is_local=self._is_local,
            host=self._engine.slot_host,
            ports=self._engine.slot_ports,
            directory=str(self._directory.path) if self._is_local else None,
            heartbeat_seconds=self._engine.heartbeat_interval.total_seconds(),
            closing_seconds=self._engine.cancellation_timeout.total_seconds(),
            log_level=level_for_slots(),
        )
        group = f"tidegate-{self._job_id}-slot-{slot}-{secrets.token_hex(8)}"
        thread = SlotThread(
            f"tidegate-slot-{slot}",
            lambda: self._run_slot(task, group),
            lambda reason: self._post(SlotJobEnded(slot, reason)),
        )
        self._jobs[slot], self._groups[slot] = thread, group
        thread.start()

    def send(self, incarnation: Incarnation, message: DriverMessage) -> None:
        line = self._lines.get(incarnation)
        if line is not None:
            try:
                line.send(message)
            except LineClosed:
                pass  # the thread that reads the line reports its end

    def kill(self, slot: SlotIndex) -> None:
        if (group := self._groups.get(slot)) is not None:
            cancel_group(self._context, group)

    def close(self) -> None:
        """Wait for the slots to exit, then kill those that do not."""
        self._is_closed = True
        for slot, thread in list(self._jobs.items()):
            if thread.ident is None:
                continue  # it could not be started, or will find that the end has come
            thread.join(_FAREWELL_SECONDS)
            if thread.is_alive() and self._context._jsc is not None:
                self.kill(slot)
                thread.join(_FAREWELL_SECONDS)
        with _reserving:
            _reserved.discard(self)
        self._listener.close()
        for line in list(self._lines.values()):
            line.close()
        self._directory.remove()

    def _run_slot(self, task: SlotTask, group: str) -> None:
        context = self._context
        context.setJobGroup(group, "slot", interruptOnCancel=True)
        context.addJobTag(f"tidegate-{self._job_id}")
        if not self._is_closed:
            context.parallelize([task.slot], 1).mapPartitions(task).collect()

    def _serve(self, connection: Connection) -> None:
        """Read the control line of one slot process until it ends."""
        line = ControlLine(connection)
        incarnation: Incarnation | None = None
        for message in line.messages():
            if isinstance(message, Register):
                incarnation = message.incarnation
                self._lines[incarnation] = line
            if incarnation is not None:
                self._post(FromSlot(incarnation, message))  # type: ignore[arg-type]
        if incarnation is not None:
            self._lines.pop(incarnation, None)
            self._post(LineEnded(incarnation, connection.is_other_end_gone))


def _tasks_of_others(context: SparkContext, job: SparkCluster | None = None) -> int:
    """How many tasks the other jobs of this process keep running."""
    return sum(
        other._tasks for other in _reserved if other is not job and other._context is context
    )


def is_local(context: SparkContext) -> bool:
    """Whether everything runs on this machine, in one JVM."""
    return re.match(r"local(\[|$)", master_of(context)) is not None


def master_of(context: SparkContext) -> str:
    return context.master or ""


def task_slots(context: SparkContext) -> int:
    """How many concurrent tasks the executors run; the default parallelism may be overridden."""
    jvm = context._jsc.sc()
    profile = jvm.resourceProfileManager().defaultResourceProfile()
    return int(jvm.maxNumConcurrentTasks(profile))


def registered_task_slots(context: SparkContext, needed: int) -> int:
    """How many tasks run at once when the executors of a cluster are there, or enough of them."""
    if is_local(context):
        return task_slots(context)
    return settled(lambda: task_slots(context), needed)


def settled(
    count: Callable[[], int],
    enough: int,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """A number that grows for a while, once it is enough or has stopped growing."""
    found, began = count(), now()
    changed = began
    while found < enough and now() - began < _REGISTRATION_SECONDS:
        if found and now() - changed > _QUIET_SECONDS:
            break
        sleep(0.1)
        if (more := count()) != found:
            found, changed = more, now()
    return found


_NOT_ENCRYPTED = (
    "the lines between slots are authenticated but not encrypted, so the job would weaken the "
    "security of the cluster; use a session without this setting"
)
_FORBIDDEN = {
    "spark.speculation": ("true", "slots cannot run twice; set it to false"),
    "spark.excludeOnFailure.enabled": ("true", "a lost slot must be able to come back; disable it"),
    "spark.network.crypto.enabled": ("true", _NOT_ENCRYPTED),
    "spark.ssl.rpc.enabled": ("true", _NOT_ENCRYPTED),
}


def _check_session(context: SparkContext, slots: int) -> None:
    configuration = context.getConf()
    for setting, (value, advice) in _FORBIDDEN.items():
        if (configuration.get(setting) or "false").lower() == value:
            raise UnsuitableSpark(setting, value, advice)
    if is_local(context) and task_slots(context) <= slots:
        raise NotEnoughTaskSlots(master_of(context), task_slots(context), slots)
