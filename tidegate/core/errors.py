"""All errors of Tidegate, by who has to act.

    TidegateError
    ├── UserError            the program or its settings must change
    │   ├── ConfigError          a setting with a value that makes no sense, or an unknown key
    │   ├── GraphError           the program cannot be a job graph
    │   ├── TypeMismatch         a record is not of the declared type
    │   ├── MissingField         a field or column that the type does not have
    │   ├── NotSerializable      a function or record that cannot travel to a slot
    │   ├── UnsupportedKey       a key whose hash would not be the same in every process
    │   ├── StateTypeChanged     a state is declared with another type than it holds
    │   ├── StateNotClaimed      a checkpoint holds state that no operator takes over
    │   ├── StateMisuse          state is used in the wrong place or way
    │   ├── UnknownState         a checkpoint has no operator or state of this name
    │   ├── UntrustedState       reading a savepoint would run what is in it
    │   ├── StateTooLarge        more state than checkpoints in the driver's memory may hold
    │   ├── NoCheckpoint         the checkpoint to start from does not exist
    │   ├── NotNow               the job cannot do this in its current state
    │   ├── UnknownJob           no job matches what a command asks for, or several do
    │   ├── AlreadyRunning       a job cannot resume because it still runs
    │   ├── OrderRefused         a job refuses a command
    │   ├── UnreadableInput      a source cannot read its input
    │   ├── UndecodableRecord    a source cannot decode a record
    │   ├── UnencodableRecord    a sink cannot encode a record
    │   ├── TableMismatch        a table is missing or has other columns than the stream
    │   ├── RowRefused           a table refuses a row
    │   ├── UnsuitableServer     a connector cannot work with a setting of its server
    │   ├── UnknownTopic         a Kafka topic that does not exist
    │   ├── KafkaRefused         Kafka refuses the job
    │   ├── UserFunctionError    user code raised while processing a record
    │   └── JobCanceled          the result of a job was awaited, but it was cancelled
    ├── ExternalError        the environment must change: Spark, disk, network
    │   ├── NotEnoughTaskSlots   the Spark master cannot run slots + 1 tasks
    │   ├── UnsuitableSpark      a Spark setting that would break slots
    │   ├── LocalStateFailed     the database of a state backend on local disk cannot be used
    │   ├── SlotLost             the process of a slot ended
    │   ├── LeaseEnded           a slot may not act any more: it may have been replaced
    │   ├── StepFailed           Spark could not run a step
    │   ├── CheckpointFailed     more checkpoints failed in a row than are tolerated
    │   ├── SavepointFailed      a savepoint, or a checkpoint asked for, could not be taken
    │   ├── StorageError         the storage of checkpoints fails
    │   │   └── BlobNotFound         there is nothing at this location
    │   ├── CorruptCheckpoint    files of a checkpoint are missing or have changed
    │   ├── RepeatsCommitted     the checkpoint that sinks committed with is damaged
    │   ├── UnsupportedFormat    a checkpoint of a newer Tidegate
    │   ├── SnapshotWriteAborted a checkpoint was aborted while a subtask still wrote
    │   ├── DirectoryTaken       another driver owns the job's directory
    │   ├── UnwritableOutput     a sink cannot write its files: the disk is full, or out of reach
    │   ├── DatabaseFailed       a database does not answer, or reports a failure
    │   ├── KafkaFailed          Kafka does not answer, or reports a failure
    │   ├── TransactionLost      a transaction that a checkpoint holds cannot be committed
    │   ├── JobOutOfReach        the driver of a job does not answer
    │   ├── NotAccepted          a pushed record was not accepted by the job
    │   ├── LineClosed           the other end of a connection is gone
    │   └── NotAuthorized        the other end of a connection does not know the job's secret
    └── InternalError        a bug in Tidegate: please report it
        └── ProtocolViolation    a message that the protocol does not allow

The facts of an error are its `args`, so that it pickles and arrives whole in another process.
"""

from __future__ import annotations

from typing import ClassVar

from tidegate.core.ids import OperatorId
from tidegate.core.poison import PoisonRecord
from tidegate.core.redaction import redacted

_PUBLIC_HOME = "tidegate.errors"
"""The module that tracebacks name: programs import errors from there."""


class TidegateError(Exception):
    """Base of all errors of Tidegate."""

    __module__ = _PUBLIC_HOME

    sentence: ClassVar[str | None] = None
    """The message, with `{}` for each fact. None: the only fact is the message."""

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.__module__ = _PUBLIC_HOME

    def __str__(self) -> str:
        return redacted(self.said())

    def said(self) -> str:
        """The complete message, secrets included."""
        return super().__str__() if self.sentence is None else self.sentence.format(*self.args)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(
    cls: type[TidegateError], facts: tuple[object, ...], attributes: dict[str, object]
) -> TidegateError:
    """Restore the error in another process, without calling `__init__` again."""
    error = cls.__new__(cls)
    error.args = facts
    error.__dict__.update(attributes)
    return error


class UserError(TidegateError):
    """The program or its settings must change."""

    suspects: range | None = None
    """Which records of the current batch may have caused it, if known: earlier records were
    processed, these and later ones were not."""


class ExternalError(TidegateError):
    """The environment must change: Spark, disk, network."""


class InternalError(TidegateError):
    """A bug in Tidegate; please report it."""


class _AtLocation(TidegateError):
    """Something is wrong at a location: where, what, and what to do."""

    sentence = "{}: {}; {}"

    def __init__(self, location: str, problem: str, advice: str) -> None:
        super().__init__(location, problem, advice)


class ConfigError(UserError, ValueError):
    """A setting that makes no sense: its key, its value, and what to give instead."""

    sentence = "{} = {!r}: {}"

    def __init__(self, key: str, value: object, advice: str) -> None:
        super().__init__(key, value, advice)


class GraphError(UserError, ValueError):
    """The program cannot be turned into a job graph."""


class TypeMismatch(UserError, TypeError):
    """A record is not of the type that its stream declares."""

    sentence = "record {1} does not fit the declared type {0}: {2}"

    def __init__(self, declared: str, found: object, reason: str) -> None:
        super().__init__(declared, shorten(found), reason)


class MissingField(UserError, LookupError):
    """A field that the record type does not have."""

    def __init__(self, field: object, available: tuple[str, ...], where: str) -> None:
        super().__init__(field, available, where)

    def said(self) -> str:
        field, available, where = self.args
        known = ", ".join(available) or "none"
        return f"{where}: no field {field!r}; the fields are: {known}"


class NotSerializable(UserError, TypeError):
    """A function or value that cannot be sent to a slot."""

    sentence = (
        "{} cannot be sent to the slots: {}. Create connections, locks and other live objects in "
        "open() instead of capturing them."
    )

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)


class UnsupportedKey(UserError, TypeError):
    """A key whose hash would not be the same in every process."""

    sentence = (
        "{} cannot be a key: {}. Return a supported key from the key selector (text, number, "
        "bytes, bool, date, time, UUID, Enum, None, or a tuple or frozen dataclass of these), or "
        "declare a key_type that has columns."
    )

    def __init__(self, key: object, reason: str) -> None:
        super().__init__(shorten(key), reason)


class StateTypeChanged(UserError, TypeError):
    """A state descriptor with another kind or type than the stored state of this name."""

    def __init__(self, state: str, stored: str, declared: str, reason: str | None = None) -> None:
        super().__init__(state, stored, declared, reason)

    def said(self) -> str:
        state, stored, declared, reason = self.args
        why = "" if reason is None else f" {reason};"
        return (
            f"state {state!r} holds {stored}, but is declared as {declared}:{why} give the new "
            "state another name, or declare it as it was"
        )


class StateNotClaimed(UserError):
    """A checkpoint holds state of operators that the program does not have."""

    def __init__(
        self, checkpoint: str, job_name: str, operators: tuple[str, ...], is_other: bool
    ) -> None:
        super().__init__(checkpoint, job_name, operators, is_other)

    def said(self) -> str:
        checkpoint, job_name, operators, is_other = self.args
        names = ", ".join(operators)
        if is_other:
            return (
                f"{checkpoint} belongs to job {job_name!r} and has no state for this program, only "
                f"for {names}: use a checkpoint of this job. If it is one, the graph has changed: "
                "operators without a uid() are found only while the graph is the same"
            )
        return (
            f"{checkpoint} has state of {names}, which this program lacks: give the "
            "operators their old uid(), or set execution.state-recovery.ignore-unclaimed-state "
            "to drop that state"
        )


class StateMisuse(UserError, RuntimeError):
    """State is used where there is none, or with a value that it cannot store."""


class UnknownState(UserError, LookupError):
    """A checkpoint has no operator or state of this name; lists those that it has."""

    def __init__(self, where: str, kind: str, name: str, known: tuple[str, ...]) -> None:
        super().__init__(where, kind, name, known)

    def said(self) -> str:
        where, kind, name, known = self.args
        return f"{where} has no {kind} {name!r}; it has {', '.join(known) or 'none at all'}"


class UntrustedState(UserError):
    """A savepoint has objects whose loading runs code of a class or function."""

    sentence = (
        "this state holds pickled objects that need {}, and loading them can run any code: pass "
        "--trust if you trust the author of the savepoint"
    )

    def __init__(self, name: str) -> None:
        super().__init__(name)


class StateTooLarge(UserError):
    """A subtask has more state than checkpoints in the driver's memory accept."""

    sentence = (
        "a subtask has at least {} bytes of state, but checkpoints in the memory of the driver "
        "accept {} per subtask: write them to files (execution.checkpointing.dir), or raise "
        "tidegate.checkpoint.max-state-in-memory"
    )

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)


class NoCheckpoint(_AtLocation, UserError, LookupError):
    """There is no checkpoint at the location to start from."""


class NotNow(UserError):
    """The job cannot do this in its current state: what was asked, the state, and what to do."""

    sentence = "no {} now: the job is {}; {}"

    def __init__(self, what: str, state: str, advice: str) -> None:
        super().__init__(what, state, advice)


class UnknownJob(UserError, LookupError):
    """No job, or more than one, matches the name or id; lists the candidates."""

    def __init__(self, asked: str, candidates: tuple[str, ...], is_ambiguous: bool) -> None:
        super().__init__(asked, candidates, is_ambiguous)

    def said(self) -> str:
        asked, candidates, is_ambiguous = self.args
        if not candidates:
            return f"there is no job {asked!r}: no job of this user runs on this machine"
        listed = "".join(f"\n  {each}" for each in candidates)
        if is_ambiguous:
            return f"{asked!r} matches several jobs; give more of the id:{listed}"
        return f"there is no job {asked!r}; there are:{listed}"


class AlreadyRunning(UserError):
    """A job cannot resume from its latest checkpoint because it still runs: name, id, process."""

    sentence = (
        "job {0!r} still runs, with id {1} in process {2}: stop it (tidegate stop {1}), or start "
        "with --take-over (tidegate.recovery.take-over), which makes the running driver fail"
    )

    def __init__(self, name: str, job_id: str, pid: int) -> None:
        super().__init__(name, job_id, pid)


class OrderRefused(UserError):
    """A job refuses a request, and says why."""


class UnreadableInput(_AtLocation, UserError, ValueError):
    """A source cannot read its input: the location, what is wrong there, and what to do."""


class UndecodableRecord(UserError, ValueError):
    """A record that a source cannot decode: where it is, its bytes, and why."""

    sentence = (
        "{}: the record {} cannot be decoded: {}; correct the schema of the source, or "
        "skip such records with env.on_poison_record()"
    )

    def __init__(self, position: str, raw: bytes, reason: str) -> None:
        super().__init__(position, shorten(raw), reason)


class UnencodableRecord(UserError, ValueError):
    """A record that the schema of a sink cannot encode, and why."""

    sentence = (
        "the record {} cannot be encoded: {}; correct the schema of the sink, or "
        "skip such records with env.on_poison_record()"
    )

    def __init__(self, record: object, reason: str) -> None:
        super().__init__(shorten(record), reason)


class TableMismatch(UserError):
    """A table is missing, or its columns are not those of the stream."""

    def __init__(
        self, table: str, problem: str, found: tuple[str, ...], wanted: tuple[str, ...]
    ) -> None:
        super().__init__(table, problem, found, wanted)

    def said(self) -> str:
        table, problem, found, wanted = self.args
        lines = [f"table {table}: {problem}"]
        if found:
            lines.append(f"columns found: {', '.join(found)}")
        if wanted:
            lines.append(f"columns wanted: {', '.join(wanted)}")
        return "\n".join(lines)


class RowRefused(UserError, ValueError):
    """A row that a table refuses: the row, the column if known, and why."""

    def __init__(self, table: str, column: str | None, row: str, reason: str) -> None:
        super().__init__(table, column, row, reason)

    def said(self) -> str:
        table, column, row, reason = self.args
        where = f"table {table}" if column is None else f"column {column!r} of table {table}"
        return f"row {row} does not fit {where}: {reason}"


class UnsuitableServer(UserError):
    """A setting of a server with which a connector cannot work, and what to set instead."""

    sentence = "{} runs with {} = {}: {}"

    def __init__(self, server: str, setting: str, value: str, advice: str) -> None:
        super().__init__(server, setting, value, advice)


class UnknownTopic(UserError, LookupError):
    """A Kafka topic that does not exist, and that the brokers do not create by themselves."""

    sentence = "Kafka at {1} has no topic {0!r}: create it, or correct its name"

    def __init__(self, topic: str, brokers: str) -> None:
        super().__init__(topic, brokers)


class KafkaRefused(UserError):
    """Kafka refuses the job: the brokers and their answer."""

    sentence = (
        "Kafka at {} refuses the job: {}; check security.protocol, sasl.mechanism and the user's "
        "name, password and rights"
    )

    def __init__(self, brokers: str, reason: str) -> None:
        super().__init__(brokers, reason)


class UserFunctionError(UserError):
    """User code raised; the traceback comes first and has only the user's frames."""

    operator_id: OperatorId | None = None
    poison: PoisonRecord | None = None
    """The record that failed, if poison records are tracked."""

    def __init__(
        self, operator: str, uid: str | None, subtask: str, record: str | None, traceback: str
    ) -> None:
        super().__init__(operator, uid, subtask, record, traceback)

    @property
    def cause(self) -> str:
        """The last line of the user's traceback: the exception's type and text."""
        return redacted(str(self.args[4]).rstrip().rsplit("\n", 1)[-1])

    def said(self) -> str:
        operator, uid, subtask, record, traceback = self.args
        identity = f"uid {uid!r}" if uid else "no uid"
        lines = [traceback.rstrip(), f"in operator {operator!r} ({identity}), subtask {subtask}"]
        if record is not None:
            lines.append(f"while processing the record {record}")
        return "\n".join(lines)


class JobCanceled(UserError):
    """The job was cancelled before it had a result."""

    sentence = "job {!r} was cancelled"

    def __init__(self, job: str) -> None:
        super().__init__(job)


class NotEnoughTaskSlots(ExternalError):
    """The Spark master cannot run as many concurrent tasks as the job needs."""

    def __init__(self, master: str, available: int, slots: int) -> None:
        super().__init__(master, available, slots)

    def said(self) -> str:
        master, available, slots = self.args
        return (
            f"the Spark master {master} runs {available} task(s) at once, but a job with {slots} "
            f"slot(s) needs {slots + 1}, better {2 * slots}: lower the parallelism, or give Spark "
            f"more cores (for a local master: local[{2 * slots}])"
        )


class UnsuitableSpark(ExternalError):
    """A Spark setting that slots cannot work with."""

    sentence = "Spark runs with {}={}: {}"

    def __init__(self, setting: str, value: str, advice: str) -> None:
        super().__init__(setting, value, advice)


class LocalStateFailed(_AtLocation, ExternalError):
    """The local database of a state backend failed: its directory, the reason, and what to do."""

    sentence = "state on local disk in {}: {}; {}"


class SlotLost(ExternalError):
    """The process of a slot ended before its job did."""

    sentence = "slot {} was lost: {}"

    def __init__(self, slot: int, reason: str) -> None:
        super().__init__(slot, reason)


class LeaseEnded(ExternalError):
    """The lease of a slot has expired: another slot may act in its place."""

    sentence = (
        "the slot has lost its lease: it has not heard from the driver for heartbeat.timeout; the "
        "process that replaces it continues its work"
    )


class StepFailed(ExternalError):
    """Spark could not run a step, even after retries."""

    sentence = "step {1} of pipeline {0} failed {2} time(s) in Spark: {3}"

    def __init__(self, pipeline: int, step: int, tries: int, reason: str) -> None:
        super().__init__(pipeline, step, tries, reason)


class SavepointFailed(ExternalError):
    """A savepoint or checkpoint could not be taken: which, and why. It leaves no files behind."""

    sentence = "the {} was not taken: {}"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)


class CheckpointFailed(ExternalError):
    """More checkpoints failed in a row than are tolerated; the last one and why."""

    sentence = (
        "checkpoint {} failed: {}\n"
        "{} failed checkpoint(s) in a row are tolerated "
        "(execution.checkpointing.tolerable-failed-checkpoints)"
    )

    def __init__(self, checkpoint_id: int, reason: str, tolerated: int) -> None:
        super().__init__(checkpoint_id, reason, tolerated)


class StorageError(_AtLocation, ExternalError):
    """The storage of checkpoints fails: where, why, and what to do."""


class BlobNotFound(StorageError):
    """There is nothing at this location."""

    def __init__(self, location: str) -> None:
        super().__init__(location, "there is no such file", "it was deleted, or never written")


class CorruptCheckpoint(ExternalError):
    """Stored data is missing or has changed."""

    sentence = (
        "{} is corrupt: expected {}, found {}; use another copy, or an older checkpoint or "
        "savepoint of the job"
    )

    def __init__(self, location: str, expected: str, found: str) -> None:
        super().__init__(location, expected, found)


class RepeatsCommitted(ExternalError):
    """The checkpoint with which sinks committed cannot be read any more."""

    def __init__(self, damaged: str, problem: str, older: str, sinks: tuple[str, ...]) -> None:
        super().__init__(damaged, problem, older, sinks)

    def said(self) -> str:
        damaged, problem, older, sinks = self.args
        return (
            f"{damaged} cannot be restored, and from {older} the job would repeat what "
            f"{', '.join(map(repr, sinks))} committed since. Restore the files of the checkpoint, "
            "or start from a later savepoint; or set tidegate.recovery.skip-damaged-checkpoints "
            f"and remove the duplicates. The problem: {problem}"
        )


class UnsupportedFormat(ExternalError):
    """A checkpoint in a format that only a newer Tidegate supports."""

    sentence = (
        "{} has the checkpoint format {}, but this Tidegate reads up to {}: use the version of "
        "Tidegate that wrote it, or a newer one"
    )

    def __init__(self, location: str, version: int, supported: int) -> None:
        super().__init__(location, version, supported)


class SnapshotWriteAborted(ExternalError):
    """A checkpoint was aborted while a subtask still wrote its part."""


class DirectoryTaken(ExternalError):
    """Another driver has taken over the directory of the job."""

    sentence = (
        "{} is no longer owned by this driver (epoch {}): another driver runs the same job and has "
        "taken over its checkpoints; stop one of the two"
    )

    def __init__(self, directory: str, epoch: int) -> None:
        super().__init__(directory, epoch)


class JobStopped(UserError):
    """The last run of the job is over; it may have been stopped with a savepoint."""

    def __init__(self, directory: str, savepoint: str, note: str) -> None:
        super().__init__(directory, savepoint, note)

    def said(self) -> str:
        directory, savepoint, note = self.args
        if not note:
            return (
                f"the job in {directory} has ended while this driver started: start the job again "
                "to run it from its beginning"
            )
        if not savepoint:
            return (
                f"the job in {directory} has ended, and its driver died before it had deleted the "
                "checkpoints: delete the directory to run the job from its beginning"
            )
        return (
            f"the job in {directory} was stopped with the savepoint {savepoint}, with which its "
            "sinks commit: start from it with execution.state-recovery.path, or delete "
            f"{note} there to return to an earlier checkpoint"
        )


class UnwritableOutput(_AtLocation, ExternalError):
    """A sink cannot write or rename a file: the location, what is wrong, and what to do."""

    sentence = "{} cannot be written: {}; {}"


class DatabaseFailed(ExternalError):
    """A database does not answer or reports a failure: which one, the operation, its message."""

    sentence = "{} failed while {}: {}"

    def __init__(self, server: str, doing: str, reason: str) -> None:
        super().__init__(server, doing, reason)


class KafkaFailed(ExternalError):
    """Kafka does not answer or reports a failure: the brokers, the operation, and their message."""

    sentence = "Kafka at {} failed while {}: {}"

    def __init__(self, brokers: str, doing: str, reason: str) -> None:
        super().__init__(brokers, doing, reason)


class TransactionLost(ExternalError):
    """A prepared transaction of a checkpoint is gone and was not committed."""

    sentence = (
        "transaction {1!r} of a checkpoint cannot be committed on {0}: {2}; its "
        "records are lost unless the job resumes from an earlier checkpoint"
    )

    def __init__(self, server: str, transaction: str, found: str) -> None:
        super().__init__(server, transaction, found)


class NotAccepted(ExternalError):
    """A pushed record was not accepted by the job: send it again later."""


class JobOutOfReach(ExternalError):
    """The driver of a job does not answer: the job, its address, and the failure."""

    sentence = "the driver of job {} does not answer at {}: {}"

    def __init__(self, job: str, url: str, reason: str) -> None:
        super().__init__(job, url, reason)


class LineClosed(ExternalError):
    """The other end of a connection is gone."""


class NotAuthorized(ExternalError):
    """The other end of a connection does not know the job's secret."""


class ProtocolViolation(InternalError):
    """A message that the protocol does not allow in this state."""


def shorten(value: object, limit: int = 200) -> str:
    """Return the repr of a record, shortened to fit a message; if repr fails, say so instead."""
    try:
        text = value if isinstance(value, str) and value.startswith("<") else repr(value)
    except Exception as failure:
        text = f"<{type(value).__name__} whose repr raised {type(failure).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
