import json
import pickle
import struct
from dataclasses import replace

import pytest
from xxhash import xxh3_64_intdigest

from tidegate.checkpoint.metadata import (
    FORMAT_VERSION,
    CheckpointMetadata,
    OperatorRecord,
    decode,
    encode,
)
from tidegate.core.errors import CorruptCheckpoint, UnsupportedFormat
from tidegate.core.ids import CheckpointId, JobId, OperatorId
from tidegate.state.backend import StateMetadata
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.operator_state import OperatorStateFacts, Redistribution
from tidegate.state.pointers import (
    FileScope,
    FileSegment,
    InlineBytes,
    KeyedStateHandle,
    OperatorHandle,
    StoredFile,
)
from tidegate.stream.elements import BarrierKind
from tidegate.types.typeinfo import Types

SOURCE = OperatorId("source")
WORDS = OperatorId("words")
SHARED = FileSegment(StoredFile(FileScope.SHARED, "aa"), 0, 10, 2**64 - 1)
OWN = FileSegment(StoredFile(FileScope.EXCLUSIVE, "bb"), 10, 20, 1)

METADATA = CheckpointMetadata(
    job_id=JobId("0" * 32),
    job_name="word count",
    checkpoint_id=CheckpointId(7),
    kind=BarrierKind.CHECKPOINT,
    triggered_at=1700000000.25,
    completed_at=1700000000.5,
    operators={
        SOURCE: OperatorRecord(
            operator_id=SOURCE,
            uid=None,
            name="Source",
            parallelism=2,
            max_parallelism=128,
            subtasks={
                0: OperatorHandle(operator_id=SOURCE, source_splits=(b"split 1", b"")),
                1: OperatorHandle(operator_id=SOURCE, operator=InlineBytes(b"union")),
            },
            finished=frozenset({1}),
            enumerator=b"enumerator",
        ),
        WORDS: OperatorRecord(
            operator_id=WORDS,
            uid="words",
            name="Words",
            parallelism=1,
            max_parallelism=128,
            subtasks={0: OperatorHandle(operator_id=WORDS, operator=SHARED)},
            ended_inputs={0: frozenset({0, 1})},
        ),
    },
)


def framed(version, document, binary=b""):
    text = json.dumps(document).encode()
    frame = struct.pack("<8sIQQ", b"TIDEGATE", version, len(text), len(binary)) + text + binary
    return frame + struct.pack("<Q", xxh3_64_intdigest(frame))


def document_of(encoded):
    _, _, size, _ = struct.unpack_from("<8sIQQ", encoded)
    return json.loads(encoded[28 : 28 + size])


def test_a_checkpoint_is_the_same_after_encoding_and_decoding():
    assert decode(encode(METADATA), "here") == METADATA


def test_the_document_can_be_read_by_people():
    document = document_of(encode(METADATA))
    assert document["job_name"] == "word count"
    assert document["kind"] == "checkpoint"
    operator = document["operators"][1]
    assert (operator["uid"], operator["ended_inputs"]) == ("words", {"0": [0, 1]})
    assert operator["subtasks"]["0"]["operator"] == ["shared", "aa", 0, 10, "f" * 16]


def test_it_knows_its_files():
    handle = OperatorHandle(operator_id=WORDS, operator=OWN)
    record = replace(METADATA.operators[WORDS], subtasks={0: handle, 1: handle})
    metadata = replace(METADATA, operators={**METADATA.operators, OperatorId("x"): record})
    assert metadata.files == {SHARED.file, OWN.file}
    assert metadata.shared_files == {"aa"}


def test_fields_that_are_not_known_are_ignored():
    document = document_of(encode(METADATA)) | {"color": "blue"}
    encoded = framed(FORMAT_VERSION, document, b"split 1unionenumerator")
    assert decode(encoded, "here").job_name == "word count"


def with_states(*states):
    keyed = KeyedStateHandle(metadata=states, max_parallelism=128, key_groups=KeyGroupRange(0, 128))
    handle = OperatorHandle(
        operator_id=WORDS,
        keyed=keyed,
        operator=SHARED,
        operator_states=tuple(OperatorStateFacts(s, Redistribution.UNION, 3) for s in states),
    )
    return replace(
        METADATA, operators={WORDS: replace(METADATA.operators[WORDS], subtasks={0: handle})}
    )


def test_it_knows_the_structure_of_types_without_reading_state():
    row = Types.ROW_NAMED(["user", "total"], [Types.STRING(), Types.LONG()])
    state = StateMetadata.of(ValueStateDescriptor("last", row))
    encoded = encode(with_states(state))
    handle = decode(encoded, "here").operators[WORDS].subtasks[0]
    assert handle.keyed.metadata[0].structure == state.structure
    (facts,) = handle.operator_states
    assert facts.metadata.structure == state.structure
    assert (facts.redistribution, facts.elements) == (Redistribution.UNION, 3)
    stored = document_of(encoded)["operators"][0]["subtasks"]["0"]["operator_states"][0]
    assert stored["structure"] == {"value": {"value": {"row": {"user": "String", "total": "Long"}}}}


def test_a_state_that_was_stored_without_its_structure_is_read():
    document = document_of(encode(with_states(StateMetadata("last", "value state of Long"))))
    subtask = document["operators"][0]["subtasks"]["0"]
    del subtask["keyed"]["states"][0]["structure"]
    del subtask["operator_states"][0]["elements"]
    handle = decode(framed(FORMAT_VERSION, document), "here").operators[WORDS].subtasks[0]
    assert handle.keyed.metadata == (StateMetadata("last", "value state of Long"),)
    assert handle.operator_states == ()


def test_a_checkpoint_of_format_1_is_read():
    document = document_of(encode(METADATA))
    for operator in document["operators"]:
        for subtask in operator["subtasks"].values():
            del subtask["operator_states"]
            if subtask["keyed"] is not None:
                del subtask["keyed"]["tables"]
    encoded = framed(1, document, b"split 1unionenumerator")
    assert decode(encoded, "here") == replace(METADATA, format_version=1)


def test_another_kind_of_file_is_no_checkpoint():
    with pytest.raises(CorruptCheckpoint) as caught:
        decode(b"PAR1" + bytes(100), "/data/chk-1/_metadata")
    assert str(caught.value) == (
        "/data/chk-1/_metadata is corrupt: expected the metadata of a checkpoint, found another "
        "kind of file; use another copy, or an older checkpoint or "
        "savepoint of the job"
    )


def test_a_cut_says_how_much_is_missing():
    encoded = encode(METADATA)
    with pytest.raises(CorruptCheckpoint, match=f"{len(encoded)} bytes, found {len(encoded) - 1};"):
        decode(encoded[:-1], "here")


def test_a_newer_format_names_its_version_and_the_way_out():
    with pytest.raises(UnsupportedFormat) as caught:
        decode(framed(FORMAT_VERSION + 1, {"all": "new"}), "/data/chk-1/_metadata")
    assert str(caught.value) == (
        f"/data/chk-1/_metadata has the checkpoint format {FORMAT_VERSION + 1}, but this Tidegate "
        f"reads up to {FORMAT_VERSION}: use the version of Tidegate that wrote it, or a newer one"
    )


@pytest.mark.parametrize(
    "segment",
    [
        ["shared", "../../etc/passwd", 0, 1, "00"],
        ["shared", "..", 0, 1, "00"],
        ["shared", "a/b", 0, 1, "00"],
        ["exclusive", "state/../../b", 0, 1, "00"],
        ["exclusive", "/b", 0, 1, "00"],
        ["elsewhere", "a", 0, 1, "00"],
        ["inline", 0, 10**6],
        ["inline", -3, 2],
        ["shared", "a"],
    ],
)
def test_pointers_that_lead_nowhere_good_are_refused(segment):
    document = document_of(encode(METADATA))
    document["operators"][1]["subtasks"]["0"]["operator"] = segment
    with pytest.raises(CorruptCheckpoint, match="a document of format 1"):
        decode(framed(1, document, b"split 1unionenumerator"), "here")


def test_a_document_without_its_fields_is_refused():
    with pytest.raises(CorruptCheckpoint, match="KeyError: 'operators'"):
        decode(framed(1, {}), "here")


class Bomb:
    def __reduce__(self):
        return exec, ("raise AssertionError('unpickled')",)


def test_pickled_state_stays_bytes():
    record = replace(METADATA.operators[SOURCE], enumerator=pickle.dumps(Bomb()))
    metadata = replace(METADATA, operators={SOURCE: record})
    assert decode(encode(metadata), "here") == metadata
