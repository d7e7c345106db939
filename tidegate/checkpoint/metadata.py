"""The content of `_metadata`, the published form of a checkpoint.

    8 bytes   TIDEGATE
    4 bytes   format version             numbers are little-endian and unsigned
    8 bytes   length of the document
    8 bytes   length of the binary part
    …         the document: JSON in UTF-8
    …         the binary part: state that is kept inline, one blob after the other
    8 bytes   xxh3 (64 bits) of all bytes before

This frame is the same in every version. Unknown fields of the document are ignored. Nothing is
ever unpickled: pickled state stays bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from tidegate.core.errors import CorruptCheckpoint, UnsupportedFormat
from tidegate.core.ids import CheckpointId, JobId, OperatorId
from tidegate.state.backend import StateMetadata
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.operator_state import OperatorStateFacts
from tidegate.state.pointers import (
    ChannelHandle,
    ChannelTime,
    ChunkHandle,
    FileScope,
    FileSegment,
    InlineBytes,
    KeyedStateHandle,
    NativeFileHandle,
    OperatorHandle,
    RowGroupHandle,
    Segment,
    StoredFile,
    TableHandle,
    TimeHandle,
)
from tidegate.state.rocksdb.files import NATIVE_FORM
from tidegate.storage.conformity import check_types
from tidegate.stream.elements import BarrierKind

FORMAT_VERSION: Final = 2
"""2 knows tables; 1 is read like it."""
_MAGIC: Final = b"TIDEGATE"
_HEADER: Final = struct.Struct("<8sIQQ")
_CHECKSUM: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRecord:
    """The state of one operator in a checkpoint."""

    operator_id: OperatorId
    uid: str | None
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: Mapping[int, OperatorHandle]
    ended_inputs: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """By subtask; only for the first operator of a vertex."""
    finished: frozenset[int] = frozenset()
    """Subtasks that have ended and do not run again."""
    enumerator: bytes | None = None
    """The pickled state of a source's split enumerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata:
    """A completed checkpoint."""

    format_version: int = FORMAT_VERSION
    job_id: JobId
    job_name: str
    checkpoint_id: CheckpointId
    kind: BarrierKind
    triggered_at: float
    """Seconds since the epoch, like `completed_at`."""
    completed_at: float
    operators: Mapping[OperatorId, OperatorRecord]
    exchanges: str = ""
    """The exchanges of the job; records in flight fit only a job with the same ones."""

    @property
    def files(self) -> frozenset[StoredFile]:
        return frozenset(segment.file for segment in self.file_segments)

    @property
    def shared_files(self) -> frozenset[str]:
        """The names of files that other checkpoints may reference, too."""
        return frozenset(file.name for file in self.files if file.scope is FileScope.SHARED)

    @property
    def file_segments(self) -> list[FileSegment]:
        return [
            segment
            for record in self.operators.values()
            for handle in record.subtasks.values()
            for segment in handle.segments
            if isinstance(segment, FileSegment)
        ]


def encode(metadata: CheckpointMetadata) -> bytes:
    writer = _Writer()
    document = json.dumps(writer.document(metadata), separators=(",", ":")).encode()
    binary = b"".join(writer.blobs)
    header = _HEADER.pack(_MAGIC, metadata.format_version, len(document), len(binary))
    frame = b"".join((header, document, binary))
    return frame + _CHECKSUM.pack(xxh3_64_intdigest(frame))


def decode(
    data: bytes, where: str, checkpoint_id: CheckpointId | None = None
) -> CheckpointMetadata:
    """Decode a checkpoint.

    Args:
        data: the content of a `_metadata` file.
        where: its path or URL, for messages.
        checkpoint_id: the expected checkpoint; None: any.

    Raises:
        CorruptCheckpoint: it is no checkpoint, or it is truncated or changed.
        UnsupportedFormat: a newer Tidegate wrote it.
    """
    if data[: len(_MAGIC)] != _MAGIC[: len(data)] or not data:
        raise CorruptCheckpoint(where, "the metadata of a checkpoint", "another kind of file")
    if len(data) < _HEADER.size:
        raise CorruptCheckpoint(where, f"at least {_HEADER.size} bytes", f"{len(data)}")
    _, version, document_size, binary_size = _HEADER.unpack_from(data)
    size = _HEADER.size + document_size + binary_size + _CHECKSUM.size
    if len(data) != size:
        raise CorruptCheckpoint(where, f"{size} bytes", f"{len(data)}")
    frame, (checksum,) = data[: -_CHECKSUM.size], _CHECKSUM.unpack(data[-_CHECKSUM.size :])
    if (found := xxh3_64_intdigest(frame)) != checksum:
        raise CorruptCheckpoint(where, f"the checksum {checksum:016x}", f"{found:016x}")
    if version > FORMAT_VERSION:
        raise UnsupportedFormat(where, version, FORMAT_VERSION)
    end = _HEADER.size + document_size
    try:
        metadata = _Reader(frame[end:]).metadata(version, json.loads(frame[_HEADER.size : end]))
        check_types(metadata)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise CorruptCheckpoint(where, f"a document of format {version}", problem) from None
    found_id = metadata.checkpoint_id
    if checkpoint_id not in (None, found_id):
        expected = f"the metadata of checkpoint {checkpoint_id}"
        raise CorruptCheckpoint(where, expected, f"that of checkpoint {found_id}")
    return metadata


class _Writer:
    """Converts handles to a JSON document and binary blobs."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []
        self._size = 0

    def document(self, metadata: CheckpointMetadata) -> dict[str, Any]:
        return {
            "job_id": metadata.job_id,
            "job_name": metadata.job_name,
            "checkpoint_id": metadata.checkpoint_id,
            "kind": metadata.kind.name.lower(),
            "triggered_at": metadata.triggered_at,
            "completed_at": metadata.completed_at,
            "operators": [self._record(record) for record in metadata.operators.values()],
            "exchanges": metadata.exchanges,
        }

    def _record(self, record: OperatorRecord) -> dict[str, Any]:
        return {
            "operator_id": record.operator_id,
            "uid": record.uid,
            "name": record.name,
            "parallelism": record.parallelism,
            "max_parallelism": record.max_parallelism,
            "subtasks": {str(i): self._handle(each) for i, each in record.subtasks.items()},
            "ended_inputs": {str(i): sorted(each) for i, each in record.ended_inputs.items()},
            "finished": sorted(record.finished),
            "enumerator": None if record.enumerator is None else self._blob(record.enumerator),
        }

    def _handle(self, handle: OperatorHandle) -> dict[str, Any]:
        return {
            "operator_id": handle.operator_id,
            "keyed": None if handle.keyed is None else self._keyed(handle.keyed),
            "operator": None if handle.operator is None else self._segment(handle.operator),
            "operator_states": [each.document() for each in handle.operator_states],
            "source_splits": [self._blob(split) for split in handle.source_splits],
            "in_flight": [
                {"edge": each.edge, "source": each.source, "content": self._segment(each.content)}
                for each in handle.in_flight
            ],
            "owned": [self._segment(each) for each in handle.owned],
            "time": None if handle.time is None else self._time(handle.time),
        }

    def _time(self, time: TimeHandle) -> dict[str, Any]:
        return {
            "emitted": time.emitted,
            "received": time.received,
            "inputs": time.inputs,
            "channels": [[c.edge, c.source, c.watermark, c.is_idle] for c in time.channels],
            "generator": None if time.generator is None else self._blob(time.generator),
        }

    def _keyed(self, keyed: KeyedStateHandle) -> dict[str, Any]:
        return {
            "states": [each.document() for each in keyed.metadata],
            "max_parallelism": keyed.max_parallelism,
            "key_groups": [keyed.key_groups.start, keyed.key_groups.stop],
            "chunks": [
                {
                    "state": chunk.state,
                    "groups": chunk.groups,
                    "payload": self._segment(chunk.payload),
                }
                for chunk in keyed.chunks
            ],
            "native_form": keyed.native_form,
            "native_files": [
                {"name": file.name, "content": self._segment(file.content)}
                for file in keyed.native_files
            ],
            "tables": [
                {
                    "state": table.state,
                    "row_groups": [
                        {"groups": each.groups, "content": self._segment(each.content)}
                        for each in table.row_groups
                    ],
                    "footer": self._segment(table.footer),
                }
                for table in keyed.tables
            ],
        }

    def _segment(self, segment: Segment) -> list[Any]:
        match segment:
            case InlineBytes(data):
                return ["inline", *self._blob(data)]
            case FileSegment(file, offset, size, checksum):
                return [file.scope.value, file.name, offset, size, f"{checksum:016x}"]

    def _blob(self, data: bytes) -> list[int]:
        self.blobs.append(data)
        self._size += len(data)
        return [self._size - len(data), len(data)]


class _Reader:
    """Converts a JSON document and its binary blobs to handles."""

    def __init__(self, binary: bytes) -> None:
        self._binary = binary

    def metadata(self, version: int, document: Any) -> CheckpointMetadata:
        records = [self._record(each) for each in document["operators"]]
        return CheckpointMetadata(
            format_version=version,
            job_id=JobId(document["job_id"]),
            job_name=document["job_name"],
            checkpoint_id=CheckpointId(document["checkpoint_id"]),
            kind=BarrierKind[document["kind"].upper()],
            triggered_at=document["triggered_at"],
            completed_at=document["completed_at"],
            operators={record.operator_id: record for record in records},
            exchanges=document.get("exchanges", ""),
        )

    def _record(self, found: Any) -> OperatorRecord:
        enumerator = found["enumerator"]
        return OperatorRecord(
            operator_id=OperatorId(found["operator_id"]),
            uid=found["uid"],
            name=found["name"],
            parallelism=found["parallelism"],
            max_parallelism=found["max_parallelism"],
            subtasks={int(i): self._handle(each) for i, each in found["subtasks"].items()},
            ended_inputs={int(i): frozenset(each) for i, each in found["ended_inputs"].items()},
            finished=frozenset(found["finished"]),
            enumerator=None if enumerator is None else self._blob(*enumerator),
        )

    def _handle(self, found: Any) -> OperatorHandle:
        keyed, operator = found["keyed"], found["operator"]
        return OperatorHandle(
            operator_id=OperatorId(found["operator_id"]),
            keyed=None if keyed is None else self._keyed(keyed),
            operator=None if operator is None else self._segment(operator),
            operator_states=tuple(
                OperatorStateFacts.of_document(each)
                for each in found.get("operator_states", ())
                if "elements" in each
            ),
            source_splits=tuple(self._blob(*each) for each in found["source_splits"]),
            in_flight=tuple(
                ChannelHandle(each["edge"], each["source"], self._segment(each["content"]))
                for each in found["in_flight"]
            ),
            owned=tuple(self._file_segment(*each) for each in found.get("owned", ())),
            time=None if found.get("time") is None else self._time(found["time"]),
        )

    def _time(self, found: Any) -> TimeHandle:
        generator = found["generator"]
        return TimeHandle(
            emitted=found["emitted"],
            received=found["received"],
            inputs=tuple((index, watermark) for index, watermark in found["inputs"]),
            channels=tuple(ChannelTime(*each) for each in found["channels"]),
            generator=None if generator is None else self._blob(*generator),
        )

    def _keyed(self, found: Any) -> KeyedStateHandle:
        return KeyedStateHandle(
            metadata=tuple(map(StateMetadata.of_document, found["states"])),
            max_parallelism=found["max_parallelism"],
            key_groups=KeyGroupRange(*found["key_groups"]),
            chunks=tuple(
                ChunkHandle(
                    each["state"],
                    tuple((group, count) for group, count in each["groups"]),
                    self._segment(each["payload"]),
                )
                for each in found["chunks"]
            ),
            native_form=_native_form(found),
            native_files=tuple(
                NativeFileHandle(_file_name(each["name"]), self._segment(each["content"]))
                for each in found["native_files"]
            ),
            tables=tuple(self._table(each) for each in found.get("tables", ())),
        )

    def _table(self, found: Any) -> TableHandle:
        return TableHandle(
            found["state"],
            tuple(
                RowGroupHandle(
                    tuple((group, count) for group, count in each["groups"]),
                    self._file_segment(*each["content"]),
                )
                for each in found["row_groups"]
            ),
            self._file_segment(*found["footer"]),
        )

    def _segment(self, found: Any) -> Segment:
        if found[0] == "inline":
            return InlineBytes(self._blob(*found[1:]))
        return self._file_segment(*found)

    @staticmethod
    def _file_segment(scope: str, name: str, offset: int, size: int, checksum: str) -> FileSegment:
        parts = name.split("/") if scope == FileScope.EXCLUSIVE.value else [name]
        file = StoredFile(FileScope(scope), "/".join(map(_file_name, parts)))
        return FileSegment(file, offset, size, int(checksum, 16))

    def _blob(self, offset: int, size: int) -> bytes:
        if not 0 <= offset <= offset + size <= len(self._binary):
            raise ValueError(f"{size} bytes at offset {offset}, of {len(self._binary)}")
        return self._binary[offset : offset + size]


def _native_form(found: Any) -> str | None:
    form: str | None = found["native_form"]
    if form is not None and (form != NATIVE_FORM or not found["native_files"]):
        raise ValueError(f"{form!r} is not a known database, or it has no files")
    return form


def _file_name(name: str) -> str:
    """Check that a name stays in its directory."""
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a file name")
    return name
