import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.cases import FEW, MANY, Case, Workload, cases_of
from benchmarks.environments import CannotBeHad, Environment, EnvironmentCache
from benchmarks.goals import LIMIT_GOALS, RATIO_GOALS, Outcome
from benchmarks.measure import (
    Kind,
    Measurement,
    find_result,
    kind_of,
    measure,
    soak_costs,
    wrong_checks,
)
from benchmarks.peers.protocol import Order
from benchmarks.peers.rule import running_sum_checksum
from benchmarks.plan import QUICK, Sizes, order_for
from benchmarks.registry import BY_NAME, PEERS, Peer
from benchmarks.report import as_json, read_measurements, write_json
from benchmarks.summary import Summary

SUM = Case(Workload.SUM, FEW)


def measured(peer: str, rate: float, case: Case = SUM, **measures: float) -> Measurement:
    return Measurement(
        peer=peer,
        case=case.name,
        keys=case.keys,
        workload=case.workload.value,
        repeat=0,
        load_before=0.0,
        rate=rate,
        measures=measures,
    )


def order() -> Order:
    return order_for(BY_NAME["flink-sql"], SUM, QUICK, "")


def answer(records: int, checksum: int) -> dict[str, object]:
    return {
        "records": records,
        "bounded": True,
        "samples": [(0.0, 0)],
        "checks": [{"what": "totals", "records": records, "checksum": checksum}],
    }


def test_every_goal_names_peers_that_measure_its_case() -> None:
    for goal in RATIO_GOALS:
        assert all(BY_NAME[name].measures(goal.case) for name in goal.peers)
    for limit in LIMIT_GOALS:
        assert BY_NAME[limit.peer].measures(limit.case)
        assert limit.than is None or BY_NAME[limit.than].measures(limit.case)


def test_a_goal_counts_against_the_fastest_of_its_peers() -> None:
    case = Case(Workload.FUNCTION, FEW)
    summary = Summary(
        [
            measured("tidegate", 900, case),
            measured("spark-tws-rows", 100, case),
            measured("spark-tws-pandas", 10, case),
        ]
    )
    verdict = next(v for v in summary.verdicts() if "spark-tws-rows" in v.goal.text)
    assert (verdict.value, verdict.outcome) == (9.0, Outcome.REACHED)


def test_repeats_are_told_by_their_median() -> None:
    summary = Summary([measured("tidegate", rate) for rate in (1.0, 7.0, 3.0)])
    line = summary.line(SUM, "tidegate")
    assert line is not None
    assert (line.rate, line.lowest, line.highest) == (3.0, 1.0, 7.0)


def test_a_goal_without_a_measurement_is_neither_reached_nor_missed() -> None:
    assert {verdict.outcome for verdict in Summary([]).verdicts()} == {Outcome.UNKNOWN}


def slot_model(costs: dict[int, float]) -> float | None:
    summary = Summary(
        [
            measured("tidegate", 1.0, Case(Workload.SLOTS, FEW, slots), cpu_us=cost)
            for slots, cost in costs.items()
        ]
    )
    return next(v.value for v in summary.verdicts() if "measured_over_model" in v.goal.text)


def test_slots_are_judged_by_the_model_of_their_cost() -> None:
    # Half of the records leave their slot for 0.2, so with eight slots seven eighths cost 0.35.
    assert slot_model({1: 1.0, 2: 1.2, 4: 1.25, 8: 1.62}) == pytest.approx(1.2)


def test_slots_are_not_judged_while_one_of_them_is_missing() -> None:
    assert slot_model({2: 1.1, 4: 1.1, 8: 1.2}) is None


def soak_samples(millions: int) -> list[tuple[float, int]]:
    """A tenth of a microsecond a record up to 300 million, twice that afterwards."""
    fast = [(m / 10, m * 1_000_000) for m in range(0, min(millions, 300) + 1, 5)]
    slow = [(30 + (m - 300) / 5, m * 1_000_000) for m in range(305, millions + 1, 5)]
    return fast + slow


def test_the_soak_compares_its_last_stretch_with_its_first() -> None:
    costs = soak_costs(soak_samples(1_000))
    assert costs["us_from_10_to_30m"] == pytest.approx(0.1)
    assert costs["last_over_first_cost"] == pytest.approx(2, rel=0.03)


def test_a_soak_that_was_broken_off_is_not_judged() -> None:
    costs = soak_costs(soak_samples(400))
    assert "us_from_300_to_1000m" in costs
    assert "last_over_first_cost" not in costs


def test_a_wrong_total_is_found() -> None:
    asked = order()
    right = running_sum_checksum(asked.records, FEW)
    assert wrong_checks(answer(asked.records, right), asked) == []
    assert "totals" in wrong_checks(answer(asked.records, right - 1), asked)[0]


def test_lost_records_are_found() -> None:
    asked = order()
    lost = asked.records - 1
    assert "arrived" in wrong_checks(answer(lost, running_sum_checksum(lost, FEW)), asked)[0]


def test_the_result_is_found_among_other_output() -> None:
    line = json.dumps({"benchmark_result": 1, "records": 5})
    found = find_result(["noise", "{not json", line, "more noise"])
    assert found is not None and found["records"] == 5
    assert find_result(["noise"]) is None


def test_cases_use_the_keys_only_where_they_matter() -> None:
    cases = cases_of([Workload.MAP, Workload.SUM], [FEW, MANY])
    assert [case.name for case in cases] == [
        "sum 1,000 keys",
        "sum 1,000,000 keys",
        "map 1,000 keys",
    ]


def test_sizes_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="seconds is 0"):
        Sizes(seconds=0)


def test_a_peer_without_a_program_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    peer = Peer("ghost", "Ghost", "tidegate", {Workload.SUM: "benchmarks.peers.ghost"}, {})
    with pytest.raises(CannotBeHad, match="not written yet"):
        measure(peer, SUM, QUICK, EnvironmentCache(tmp_path), repeat=0, thorough=False)


def test_an_environment_that_cannot_be_installed_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Environment("broken", ("./there-is-no-such-folder",), (3, 11), (3, 99), java=False)
    monkeypatch.setattr("benchmarks.environments.ENVIRONMENTS", {"broken": broken})
    with pytest.raises(CannotBeHad, match="there-is-no-such-folder"):
        EnvironmentCache(tmp_path).interpreter("broken")


def test_a_program_that_dies_is_a_failed_measurement(tmp_path: Path) -> None:
    # Started without the package it measures: this interpreter has no Bytewax.
    program = dict(BY_NAME["bytewax"].modules)
    peer = Peer("bytewax", "Bytewax", "tidegate", program, {}, {"batch": 10})
    done = measure(
        peer,
        Case(Workload.FUNCTION, FEW),
        QUICK,
        EnvironmentCache(tmp_path),
        repeat=0,
        thorough=False,
    )
    assert done.failure is not None
    assert "No module named 'bytewax'" in done.failure


def test_measurements_survive_the_json_file(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    before = [measured("tidegate", 5.0), measured("polars", 10.0)]
    write_json(path, as_json(QUICK, before, {"pyflink": "no Java"}))
    after, left_out = read_measurements(path)
    assert [asdict(one) for one in after] == [asdict(one) for one in before]
    assert left_out == {"pyflink": "no Java"}


def test_names_of_peers_are_unique() -> None:
    assert len(BY_NAME) == len(PEERS)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("python", Kind.PYTHON),
        ("python3.11", Kind.PYTHON),
        ("java", Kind.JAVA),
        ("stream executio", Kind.OTHER),
        ("Executor task l", Kind.OTHER),
        ("bash", Kind.OTHER),
    ],
)
def test_a_child_that_a_jvm_is_starting_counts_as_neither(name: str, kind: Kind) -> None:
    assert kind_of(name) is kind
