"""Windows, joins, timers and requests give the same results however a job is interrupted."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, given, note

from tests.effort import examples
from tests.properties.timed_programs import (
    Interruption,
    Program,
    Run,
    Setting,
    journeys,
    programs,
)

QUIET = Setting(parallelism=1, backend="hashmap", mode="aligned")


@pytest.mark.slow
@given(programs(), journeys())
# A failure may depend on timing, so it is reported without shrinking.
@examples(2, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_an_interrupted_program_has_the_results_of_an_undisturbed_one(
    program: Program, journey: tuple[Setting, list[Interruption]]
) -> None:
    note(f"{program}\n{journey}")
    with tempfile.TemporaryDirectory(prefix="tidegate-interrupted-") as place:
        quiet = Run(program, Path(place) / "quiet")
        quiet.tap.open()
        expected = quiet.finish(quiet.start(QUIET, is_typed=False))
        found = Run(program, Path(place) / "interrupted").travel(*journey)
        assert (found - expected, expected - found) == (Counter(), Counter())
