import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.line import Badness
from tests.cluster.standalone import run_program, standalone_cluster, two_hosts
from tests.effort import seed, times
from tests.spark.chaos import Chaos
from tests.spark.scripts import end

pytestmark = [pytest.mark.cluster]
PROGRAM = Path(__file__).with_name("exchange_program.py")
RECORDS = 20_000


def expected() -> dict[str, int]:
    totals: Counter[str] = Counter()
    for i in range(1, RECORDS + 1):
        totals[f"k{i % 10}"] += i
    return dict(totals)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), cores=4) as address:
        yield address


def test_records_move_between_two_executors_of_a_standalone_cluster(master):
    answer = json.loads(run_program(PROGRAM, master, str(RECORDS)).splitlines()[-1])
    assert answer["totals"] == expected()
    assert len(answer["executors"]) == 2
    assert set(answer["counts"]) == {1000}


def test_pumps_of_two_executors_carry_records_over_tcp_beside_another_job(master):
    output = run_program(PROGRAM, master, str(RECORDS), "pipelined")
    answer = json.loads(output.splitlines()[-1])
    assert answer["totals"] == expected()
    assert set(answer["counts"]) == {1000}


@pytest.mark.prove
def test_pumps_carry_records_between_two_hosts(tmp_path):
    """Spark chooses the host of each slot and pump, but they do not all fit into one."""
    with (
        two_hosts(Badness(delay=0.005, loss=0.01)) as (here, there, line),
        standalone_cluster(tmp_path, 4, (here, there)) as master,
    ):
        lost = line.lost
        output = run_program(PROGRAM, master, str(RECORDS), "pipelined", host=here)
    answer = json.loads(output.splitlines()[-1])
    assert answer["totals"] == expected()
    assert line.lost > lost


@pytest.mark.prove
def test_the_same_program_runs_on_a_local_cluster_of_two_executors():
    output = run_program(PROGRAM, "local-cluster[3,1,1024]", str(RECORDS))
    assert json.loads(output.splitlines()[-1])["totals"] == expected()


@pytest.mark.prove
def test_a_job_survives_the_loss_of_executors_and_of_its_driver(master, tmp_path):
    rnd = random.Random(seed())
    victims = ["executor", "driver", *rnd.choices(["executor", "slot", "driver"], k=times(1))]
    chaos = Chaos(tmp_path, "rocksdb", rnd, master)
    try:
        chaos.run(victims)
    finally:
        end(chaos.process)
    assert chaos.restored >= len(victims)
    assert chaos.results() == chaos.expected()
