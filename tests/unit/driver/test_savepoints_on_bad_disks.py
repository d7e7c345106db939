"""Savepoints where there is no room, or nothing may be written: told, and without a trace."""

import hashlib

import pytest

from tests.disks import make_read_only, make_writable
from tests.jobs import on_disk, summed, totals
from tests.programs import PATIENCE, read, wait_until
from tests.taps import Tap
from tidegate.core.errors import JobCanceled, SavepointFailed
from tidegate.core.modes import SavepointFormat
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import BarrierKind

HALF, ALL = 2_000, 2_010
RECORDS = [(hashlib.sha256(str(number).encode()).hexdigest(), number) for number in range(ALL)]
ORDERS = {
    "savepoint": {"kind": BarrierKind.SAVEPOINT},
    "cancel": {"kind": BarrierKind.SAVEPOINT, "cancels": True},
    "stop": {"kind": BarrierKind.STOP},
}
ROOM = 40 << 10


def fill_up(disk):
    (disk / "ballast").write_bytes(bytes((1 << 20) - ROOM))


def has_room_again(disk):
    (disk / "ballast").unlink()


TROUBLES = {
    "full": (fill_up, has_room_again, "No space left on device; free space there, or choose"),
    "read-only": (make_read_only, make_writable, "Read-only file system; let the user who runs"),
}


@pytest.fixture(params=["canonical", "native in files", "native in its metadata"])
def form(request):
    """The format, and how much state of a subtask goes into the metadata."""
    format = SavepointFormat[request.param.partition(" ")[0].upper()]
    return format, "1 mb" if "metadata" in request.param else "0 b"


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("what", ["savepoint", "cancel", "stop"])
def test_the_job_runs_on_and_nothing_is_left(start, watch, tmp_path, disk, form, trouble, what):
    format, inline = form
    begin, end, sentence = TROUBLES[trouble]
    settings = on_disk(
        tmp_path / "checkpoints",
        **{
            "execution.checkpointing.data-inline-threshold": inline,
            "tidegate.step.max-records": 500,
        },
    )
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    tap.let_pass(HALF)
    begin(disk)

    def order():
        return job.order(directory=disk, format=format, **ORDERS[what]).result(PATIENCE)

    with pytest.raises(SavepointFailed, match="the savepoint was not taken") as failure:
        order()
    assert str(disk) in str(failure.value)
    assert sentence in str(failure.value)
    wait_until(lambda: [path.name for path in disk.iterdir() if path.name != "ballast"] == [])
    assert job.status is JobStatus.RUNNING
    end(disk)
    assert order().startswith(str(disk))
    tap.let(ALL)
    if what == "cancel":
        job.fails(JobCanceled)
    else:
        job.result()
        counted = RECORDS if what == "savepoint" else RECORDS[:HALF]
        assert dict(job.records("sums")) == totals(counted)
