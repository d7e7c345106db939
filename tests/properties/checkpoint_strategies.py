"""Random checkpoints: pointers to state of random operators."""

from hypothesis import strategies as st

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.core.ids import CheckpointId, JobId, OperatorId
from tidegate.state.backend import PayloadForm, StateMetadata
from tidegate.state.keys.key_groups import KeyGroupRange
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
    StoredFile,
    TableHandle,
    TimeHandle,
)
from tidegate.stream.elements import BarrierKind

NAMES = st.text(min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..") and not set(name) & set("/\\\0")
)
NUMBERS = st.integers(0, 2**40)
BLOBS = st.binary(max_size=30)
FILES = st.builds(StoredFile, st.sampled_from(FileScope), NAMES) | st.builds(
    StoredFile, st.just(FileScope.EXCLUSIVE), st.lists(NAMES, min_size=2, max_size=4).map("/".join)
)
FILE_SEGMENTS = st.builds(FileSegment, FILES, NUMBERS, NUMBERS, st.integers(0, 2**64 - 1))
SEGMENTS = st.builds(InlineBytes, BLOBS) | FILE_SEGMENTS
GROUPS = st.dictionaries(st.integers(0, 127), st.integers(1, 10**6), min_size=1, max_size=4)
RANGES = st.tuples(st.integers(0, 128), st.integers(0, 128)).map(
    lambda ends: KeyGroupRange(min(ends), max(ends))
)
KEYED = st.builds(
    KeyedStateHandle,
    metadata=st.lists(
        st.builds(
            StateMetadata, st.text(max_size=5), st.text(max_size=9), st.sampled_from(PayloadForm)
        ),
        max_size=2,
    ).map(tuple),
    max_parallelism=st.integers(1, 32768),
    key_groups=RANGES,
    chunks=st.lists(
        st.builds(
            ChunkHandle,
            st.text(max_size=5),
            GROUPS.map(lambda g: tuple(sorted(g.items()))),
            SEGMENTS,
        ),
        max_size=3,
    ).map(tuple),
    native_form=st.none() | st.just("rocksdb"),
    native_files=st.lists(st.builds(NativeFileHandle, NAMES, SEGMENTS), max_size=3).map(tuple),
    tables=st.lists(
        st.builds(
            TableHandle,
            st.text(max_size=5),
            st.lists(
                st.builds(
                    RowGroupHandle, GROUPS.map(lambda g: tuple(sorted(g.items()))), FILE_SEGMENTS
                ),
                max_size=2,
            ).map(tuple),
            FILE_SEGMENTS,
        ),
        max_size=2,
    ).map(tuple),
).filter(lambda handle: handle.native_form is None or handle.native_files)
WATERMARKS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.builds(
    TimeHandle,
    emitted=WATERMARKS,
    received=WATERMARKS,
    inputs=st.lists(st.tuples(st.integers(0, 1), WATERMARKS), max_size=2).map(tuple),
    channels=st.lists(
        st.builds(ChannelTime, st.integers(0, 9), st.integers(0, 9), WATERMARKS, st.booleans()),
        max_size=2,
    ).map(tuple),
    generator=st.none() | BLOBS,
)
HANDLES = st.builds(
    OperatorHandle,
    operator_id=st.text(max_size=8).map(OperatorId),
    keyed=st.none() | KEYED,
    operator=st.none() | SEGMENTS,
    source_splits=st.lists(BLOBS, max_size=2).map(tuple),
    in_flight=st.lists(
        st.builds(ChannelHandle, st.integers(0, 9), st.integers(0, 9), SEGMENTS), max_size=2
    ).map(tuple),
    time=st.none() | TIMES,
)
SUBTASKS = st.integers(0, 9)
RECORDS = st.builds(
    OperatorRecord,
    operator_id=st.text(max_size=8).map(OperatorId),
    uid=st.none() | st.text(max_size=8),
    name=st.text(max_size=8),
    parallelism=st.integers(1, 10),
    max_parallelism=st.integers(1, 32768),
    subtasks=st.dictionaries(SUBTASKS, HANDLES, max_size=2),
    ended_inputs=st.dictionaries(SUBTASKS, st.frozensets(SUBTASKS, max_size=3), max_size=2),
    finished=st.frozensets(SUBTASKS, max_size=3),
    enumerator=st.none() | BLOBS,
)
METADATA = st.builds(
    CheckpointMetadata,
    job_id=st.text("0123456789abcdef", min_size=32, max_size=32).map(JobId),
    job_name=st.text(max_size=10),
    checkpoint_id=st.integers(1, 2**40).map(CheckpointId),
    kind=st.sampled_from(BarrierKind),
    triggered_at=st.floats(0, 2**33),
    completed_at=st.floats(0, 2**33),
    operators=st.lists(RECORDS, max_size=2, unique_by=lambda record: record.operator_id).map(
        lambda records: {record.operator_id: record for record in records}
    ),
    exchanges=st.text("0123456789abcdef", max_size=4),
)
