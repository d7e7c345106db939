"""A real job, killed again and again: slots and driver, wherever it happens to be."""

import random

import pytest

from tests.spark.chaos import Chaos
from tests.spark.scripts import end

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]
KILLS = 25
"""With each backend."""


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_whatever_is_killed_every_record_counts_once(backend, tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rnd = random.Random(seed)
    victims = rnd.choices(["slot", "driver"], [6, 1], k=KILLS)
    chaos = Chaos(tmp_path, backend, rnd)
    try:
        chaos.run(victims)
    finally:
        end(chaos.process)
    assert chaos.kills == victims
    assert chaos.restored >= KILLS
    assert chaos.results() == chaos.expected()
