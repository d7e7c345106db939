"""Diagnostics of a job."""

from __future__ import annotations

import base64
import os
import platform
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Annotated, Any, Literal

from tidegate.core.redaction import redacted
from tidegate.driver.chronicle import Chronicle
from tidegate.driver.job_handle import JobHandle
from tidegate.driver.slots import SlotProcess
from tidegate.protocol.messages import Profile, SampledRecord
from tidegate.web.documents.common import NEVER, milliseconds, slot_name, task_manager_id
from tidegate.web.forms import Between, Form, camel, named
from tidegate.web.recent_logs import LogLine

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


class LogQuery(Form):
    """Which lines to return."""

    level: Annotated[Level, "This level and above."] = "DEBUG"
    search: Annotated[str | None, "Text in the line, case-insensitive."] = None
    task: Annotated[str | None, "Text in the name of the subtask or thread."] = None
    before: Annotated[int | None, Between(0, 10**17), "Only lines with lower ids."] = None
    limit: Annotated[int, Between(1, 1000)] = 200


class LogLineDocument(Form):
    """A line of the log."""

    id: int
    time: int
    level: str
    logger: str
    task: Annotated[str, "The subtask in whose slot it was logged, or the thread of the driver."]
    message: str


class Logs(Form):
    """Lines of the log, newest first."""

    lines: list[LogLineDocument]
    more: bool


class ThreadInfo(Form, naming=camel):
    """A thread and its stack."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(Form, naming=camel):
    """All threads of a process."""

    thread_infos: list[ThreadInfo]


class FlameQuery(Form):
    """What to sample, for how long."""

    type: Literal["full", "on_cpu", "off_cpu"] = "on_cpu"
    subtaskindex: Annotated[int, Between(0, 1 << 15)] = 0
    seconds: Annotated[int, Between(1, 10)] = 3


class FlameFacts(Form):
    """How it was sampled."""

    sampler: str
    seconds: float
    note: str | None


class FlameGraph(Form):
    """Where the time of a slot goes, as a tree of functions."""

    end_timestamp: int = named("endTimestamp")
    data: Annotated[dict[str, Any], "name, value (samples) and children."]
    tidegate: FlameFacts


class SampleOrder(Form):
    """How many records to wait for, and for how long."""

    records: Annotated[int, Between(1, 20)] = 10
    seconds: Annotated[int, Between(1, 10)] = 2


class SampledRecordDocument(Form):
    """A record that was sent along an edge."""

    subtask: int
    record: str
    timestamp: int | None


class Sample(Form):
    """Some records that were sent along an edge."""

    records: list[SampledRecordDocument]
    seconds: float


class DeadLetterDocument(Form):
    """A skipped record."""

    time: int
    operator: str
    uid: str | None
    subtask: int
    position: str | None
    record: str
    raw: Annotated[str, "In base64."]
    raw_format: str
    error: str
    traceback: str


class DeadLettersDocument(Form):
    """The last skipped records, newest first."""

    total: Annotated[int, "All records skipped since the job started."]
    letters: list[DeadLetterDocument]


class TaskManagerFacts(Form):
    """Tidegate's own facts about a slot."""

    jid: str
    slot: int
    host: str
    pid: int
    since: int
    memory: int | None


class Hardware(Form, naming=camel):
    """Of the host of a slot; -1: not known here."""

    cpu_cores: int = NEVER
    physical_memory: int = NEVER
    free_memory: int = NEVER
    managed_memory: int = NEVER


class SlotMemory(Form, naming=camel):
    """What a slot uses, as Flink says it of the heap."""

    heap_used: int
    heap_committed: int
    heap_max: int = NEVER
    garbage_collectors: list[str]


class TaskManagerDocument(Form, naming=camel):
    """A slot, which is a separate process."""

    id: str
    path: str
    data_port: int = NEVER
    time_since_last_heartbeat: int = NEVER
    slots_number: int = 1
    free_slots: int = 0
    hardware: Hardware
    memory_configuration: dict[str, int]
    metrics: SlotMemory
    tidegate: TaskManagerFacts


class TaskManagers(Form):
    """The slots of all jobs of a driver."""

    taskmanagers: list[TaskManagerDocument]


class ConfigEntry(Form):
    """A setting."""

    key: str
    value: str


class JvmFacts(Form):
    """Flink's name for the environment of the driver."""

    version: str
    arch: str
    options: list[str]


class Environment(Form):
    """The environment of a driver."""

    jvm: JvmFacts
    classpath: list[str]
    packages: dict[str, str]


def log_documents(lines: list[LogLine], more: bool) -> Logs:
    found = [
        LogLineDocument(
            id=line.id,
            time=milliseconds(line.at),
            level=line.level,
            logger=line.logger,
            task=line.task,
            message=line.message,
        )
        for line in lines
    ]
    return Logs(lines=found, more=more)


def thread_dump(stacks: Mapping[str, str]) -> ThreadDump:
    infos = [
        ThreadInfo(thread_name=name, stringified_thread_info=f'"{name}"\n{stack}')
        for name, stack in sorted(stacks.items())
    ]
    return ThreadDump(thread_infos=infos)


def flame_graph(profile: Profile) -> FlameGraph:
    root: dict[str, Any] = {"name": "root", "value": 0, "children": {}}
    for stack, count in profile.stacks.items():
        node = root
        node["value"] += count
        for name in stack.split(";"):
            node = node["children"].setdefault(name, {"name": name, "value": 0, "children": {}})
            node["value"] += count
    facts = FlameFacts(sampler=profile.sampler, seconds=profile.seconds, note=profile.note)
    return FlameGraph(end_timestamp=milliseconds(time.time()), data=_listed(root), tidegate=facts)


def _listed(node: dict[str, Any]) -> dict[str, Any]:
    children = sorted(node["children"].values(), key=lambda each: -each["value"])
    return {**node, "children": [_listed(each) for each in children]}


def sample(found: Mapping[int, tuple[SampledRecord, ...]], most: int, seconds: float) -> Sample:
    records = [
        SampledRecordDocument(subtask=subtask, record=each.text, timestamp=each.timestamp)
        for subtask, some in found.items()
        for each in some
    ]
    return Sample(records=records[:most], seconds=round(seconds, 3))


def dead_letters(chronicle: Chronicle) -> DeadLettersDocument:
    return DeadLettersDocument(
        total=sum(chronicle.skipped_records.values()),
        letters=[
            DeadLetterDocument(
                time=milliseconds(each.at),
                operator=each.operator,
                uid=each.uid,
                subtask=each.subtask,
                position=each.position,
                record=each.record,
                raw=base64.b64encode(each.raw).decode(),
                raw_format=each.raw_format,
                error=each.error,
                traceback=each.traceback,
            )
            for each in chronicle.dead_letters
        ],
    )


def task_manager(job: JobHandle, slot: int, process: SlotProcess) -> TaskManagerDocument:
    memory = NEVER if process.memory is None else process.memory
    return TaskManagerDocument(
        id=task_manager_id(job.job_id, slot),
        path=f"{process.host}:{process.pid}/{slot_name(slot)}",
        hardware=Hardware(),
        memory_configuration={},
        metrics=SlotMemory(heap_used=memory, heap_committed=memory, garbage_collectors=[]),
        tidegate=TaskManagerFacts(
            jid=job.job_id,
            slot=slot,
            host=process.host,
            pid=process.pid,
            since=milliseconds(process.since),
            memory=process.memory,
        ),
    )


def environment() -> Environment:
    return Environment(
        jvm=JvmFacts(
            version=f"{platform.python_implementation()} {platform.python_version()}",
            arch=platform.machine(),
            options=[redacted(each) for each in sys.orig_argv],
        ),
        classpath=[each for each in sys.path if each],
        packages={each.name: each.version for each in metadata.distributions()},
    )


def driver_metrics() -> dict[str, float]:
    """Metrics of the driver, under Flink's names if it has them."""
    times = os.times()
    return {
        "Status.JVM.CPU.Time": 1e9 * (times.user + times.system),
        "Status.JVM.Threads.Count": len(sys._current_frames()),
    }
