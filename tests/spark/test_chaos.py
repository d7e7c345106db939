"""A real job, killed again and again: slots and driver, wherever it happens to be."""

import random

import pytest

from tests.effort import seed, times
from tests.spark.chaos import Chaos
from tests.spark.scripts import end

pytestmark = [pytest.mark.prove, pytest.mark.soak, pytest.mark.timeout(1500)]
KILLS = times(4)
"""With each backend."""


PIPELINED, JOBS = "local[12]", "local[4]"
"""By how many tasks run at once: pumps need their share."""


@pytest.mark.parametrize(
    ("backend", "master"),
    [
        pytest.param("hashmap", PIPELINED, id="hashmap-pipelined"),
        pytest.param("hashmap", JOBS, id="hashmap-jobs"),
        pytest.param("rocksdb", PIPELINED, id="rocksdb-pipelined"),
        pytest.param("rocksdb", JOBS, id="rocksdb-jobs"),
    ],
)
def test_whatever_is_killed_every_record_counts_once(backend, master, tmp_path):
    rnd = random.Random(seed())
    victims = ["driver", *rnd.choices(["slot", "driver"], [6, 1], k=KILLS - 1)]
    rnd.shuffle(victims)
    chaos = Chaos(tmp_path, backend, rnd, master)
    try:
        chaos.run(victims)
    finally:
        end(chaos.process)
    assert chaos.kills == victims
    assert chaos.restored >= KILLS
    assert chaos.results() == chaos.expected()
