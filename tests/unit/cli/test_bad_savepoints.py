"""Savepoints that cannot be used, as the commands meet them: a sentence, a code, no change."""

import shutil

import pytest
from typer.testing import CliRunner

from tests.effort import some
from tests.savepoints import stored, use
from tidegate.checkpoint.metadata import FORMAT_VERSION, decode, encode
from tidegate.cli.main import app
from tidegate.core.modes import SavepointFormat
from tidegate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tidegate.state.operator_state import OperatorStateStore
from tidegate.types.typeinfo import Types

TOTAL = ValueStateDescriptor("total", Types.LONG())
USER_ERROR, EXTERNAL = 1, 6
PROGRAM = """
from tidegate import KeyedProcessFunction, Types, ValueStateDescriptor
from tidegate.datastream.connectors.file_system import Encoder, FileSink
from tidegate.testing.environments import mini_environment


class Total(KeyedProcessFunction):
    def open(self, context):
        self.total = context.get_state(ValueStateDescriptor("total", {type}))

    def process_element(self, value, ctx):
        yield str(value)


env = mini_environment(parallelism=2).enable_checkpointing("10 ms")
env.configure({{"execution.checkpointing.dir": {directory!r}}})
numbers = env.from_sequence(1, 10).uid("numbers")
totals = numbers.key_by(lambda n: n % 7).process(Total(), Types.STRING()).uid({uid!r})
totals.sink_to(FileSink({out!r}, Encoder())).uid("sink")
env.execute("totals")
"""


def fill(backend):
    total = backend.value_state(TOTAL)
    for key in range(500):
        if use(backend, key):
            total.update(3 * key)


def some_elements(subtask):
    store = OperatorStateStore()
    elements = store.get_list_state(ListStateDescriptor("elements", Types.STRING()))
    elements.add_all([f"element {number} of {subtask}" for number in range(500)])
    return store.freeze()


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("savepoints") / "savepoint-aaaaaa-0b7e55aa41cd"
    return stored(path, {"totals": fill})


@pytest.fixture
def savepoint(intact, tmp_path):
    return shutil.copytree(intact, tmp_path / intact.name)


@pytest.fixture(params=some("rocksdb native", "hashmap native", "hashmap canonical"))
def with_files(request, tmp_path):
    """A savepoint with keyed state, and with operator state in a file of its own."""
    backend, _, format = request.param.partition(" ")
    return stored(
        tmp_path / "savepoint-bbbbbb-0b7e55aa41cd",
        {"totals": fill},
        backend=backend,
        format=SavepointFormat[format.upper()],
        states={"totals": [some_elements(0), some_elements(1)]},
    )


@pytest.fixture
def program(tmp_path):
    def write(uid="totals", type="Types.LONG()"):
        file = tmp_path / "job.py"
        out, directory = str(tmp_path / "out"), str(tmp_path / "checkpoints")
        file.write_text(PROGRAM.format(uid=uid, type=type, out=out, directory=directory))
        return str(file)

    return write


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(code, *arguments):
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


def content(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- what is done to a savepoint ----------------------------------------------------------------


def delete_it(savepoint):
    shutil.rmtree(savepoint)
    return f"{savepoint}: there is no such directory, or it is empty; specify a savepoint"


def take_its_metadata(savepoint):
    (savepoint / "_metadata").unlink()
    return "but no _metadata, so it was never completed; specify an earlier checkpoint or savepoint"


def leave_only_a_temporary_file(savepoint):
    data = (savepoint / "_metadata").read_bytes()
    shutil.rmtree(savepoint)
    savepoint.mkdir()
    (savepoint / "._metadata.0123456789abcdef.tmp").write_bytes(data)
    return "it has 1 file(s) but no _metadata, so it was never completed"


def put_a_file_in_its_place(savepoint):
    shutil.rmtree(savepoint)
    savepoint.write_text("notes")
    return f"{savepoint}: it is a file, not a checkpoint; specify a savepoint"


def cut_its_metadata(savepoint):
    path = savepoint / "_metadata"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    return f"{path} is corrupt: expected {len(data)} bytes, found {len(data) - 1}; use another copy"


def empty_its_metadata(savepoint):
    (savepoint / "_metadata").write_bytes(b"")
    return f"{savepoint}/_metadata is corrupt: expected the metadata of a checkpoint"


def flip_a_bit_of_its_metadata(savepoint):
    path = savepoint / "_metadata"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    return f"{path} is corrupt: expected the checksum"


def make_it_newer(savepoint):
    path = savepoint / "_metadata"
    newer = decode(path.read_bytes(), "")
    object.__setattr__(newer, "format_version", FORMAT_VERSION + 1)
    path.write_bytes(encode(newer))
    return (
        f"{path} has the checkpoint format {FORMAT_VERSION + 1}, but this Tidegate reads up to "
        f"{FORMAT_VERSION}: use the version of Tidegate that wrote it, or a newer one"
    )


NO_SAVEPOINT = [
    (delete_it, USER_ERROR),
    (take_its_metadata, USER_ERROR),
    (leave_only_a_temporary_file, USER_ERROR),
    (put_a_file_in_its_place, USER_ERROR),
]
NOT_WHAT_WAS_WRITTEN = [
    (cut_its_metadata, EXTERNAL),
    (empty_its_metadata, EXTERNAL),
    (flip_a_bit_of_its_metadata, EXTERNAL),
    (make_it_newer, EXTERNAL),
]


def name_of(value):
    return getattr(value, "__name__", None)


@pytest.mark.parametrize("command", ["run", "plan", "show", "diff"])
@pytest.mark.parametrize(("harm", "code"), NO_SAVEPOINT + NOT_WHAT_WAS_WRITTEN, ids=name_of)
def test_what_is_wrong_with_a_savepoint_is_said(
    savepoint, intact, program, tmp_path, command, harm, code
):
    sentence = harm(savepoint)
    arguments = {
        "run": ("run", "--from", savepoint, program()),
        "plan": ("plan", savepoint, program()),
        "show": ("state", "show", savepoint),
        "diff": ("state", "diff", intact, savepoint),
    }[command]
    before = content(tmp_path)
    assert sentence in refused(code, *arguments)
    assert content(tmp_path) == before


@pytest.mark.parametrize(("harm", "code"), NO_SAVEPOINT + NOT_WHAT_WAS_WRITTEN, ids=name_of)
def test_nothing_is_deleted_that_is_no_savepoint(savepoint, tmp_path, harm, code):
    sentence = harm(savepoint)
    before = content(tmp_path)
    expected = "there is no savepoint; specify the path of one" if code == USER_ERROR else sentence
    assert expected in refused(code, "savepoint", "--dispose", savepoint)
    assert content(tmp_path) == before


# --- files of state -----------------------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def delete(path):
    path.unlink()


@pytest.mark.parametrize("harm", [cut, flip_a_bit, delete], ids=name_of)
def test_every_file_of_state_that_has_changed_is_named(with_files, program, tmp_path, harm):
    files = [file for file in content(with_files) if file.name != "_metadata"]
    for file in files:
        data = file.read_bytes()
        harm(file)
        output = refused(EXTERNAL, "run", "--from", with_files, program())
        assert f"{file} is corrupt: expected" in output
        assert not content(tmp_path / "out"), "no record was processed"
        assert not content(tmp_path / "checkpoints")
        file.write_bytes(data)
    done = invoke("run", "--from", with_files, program())
    assert done.exit_code == 0, done.output


# --- jobs that it does not fit ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "change", "sentence"),
    [
        ((), {"uid": "sums"}, "(uid totals): use a checkpoint of this job"),
        (
            (),
            {"type": "Types.STRING()"},
            "the type was Long and is String now; give the new state another name",
        ),
        (
            ("--max-parallelism", "64"),
            {},
            "max parallelism of 128, but the job has 64: set the max parallelism to 128",
        ),
        (("-p", "200"), {}, "128"),
    ],
    ids=["uid", "type", "max parallelism", "parallelism"],
)
def test_a_job_that_does_not_fit_is_refused_with_the_reason_and_leaves_nothing(
    savepoint, program, tmp_path, options, change, sentence
):
    before = content(savepoint)
    arguments = ("run", "--from", savepoint, *options, program(**change))
    assert sentence in refused(USER_ERROR, *arguments)
    assert content(savepoint) == before
    assert not list((tmp_path / "out").rglob("*")), "no record was processed"
    assert not content(tmp_path / "checkpoints")
