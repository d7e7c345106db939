import pytest

from tests import prove as proving
from tests.prove import FAILED, PASSED, UNFINISHED, Campaign, prove

CAMPAIGNS = [Campaign(name, 10, seconds) for name, seconds in [("a", 50), ("b", 60), ("c", 70)]]


@pytest.fixture
def time(monkeypatch):
    """Time that only passes while a campaign runs."""

    class Time:
        now = 0.0

        def monotonic(self):
            return self.now

    monkeypatch.setattr(proving, "CAMPAIGNS", CAMPAIGNS)
    monkeypatch.setattr(proving, "time", Time())
    return proving.time


@pytest.fixture
def campaigns(time, tmp_path):
    """Runs what fits into some minutes; returns names and seeds of what was run."""

    def run(minutes, seed=None, outcomes=()):
        ran = []

        def carry_out(campaign, seed, limit):
            ran.append((campaign.tests, seed))
            time.now += campaign.seconds
            return dict(outcomes).get(campaign.tests, PASSED), campaign.seconds

        prove(minutes, seed, tmp_path / "proofs" / "ledger.jsonl", carry_out)
        return ran

    return run


def test_the_same_seed_gives_the_same_proofs_and_another_one_others(campaigns, tmp_path):
    first = campaigns(30, seed=7)
    (tmp_path / "proofs" / "ledger.jsonl").unlink()
    assert campaigns(30, seed=7) == first
    assert campaigns(30, seed=8) != first


def test_nothing_is_started_that_does_not_fit_into_the_time(campaigns):
    assert campaigns(0.5) == []
    assert [name for name, _ in campaigns(50 / 60)] == ["a"]


def test_a_proof_continues_after_what_the_ledger_contains(campaigns, tmp_path):
    whole = campaigns(6, seed=7)
    (tmp_path / "proofs" / "ledger.jsonl").unlink()
    first = campaigns(3, seed=7)
    assert len(first) == 3
    assert [*first, *campaigns(3)] == whole


def test_what_came_to_no_end_is_run_again_and_what_failed_is_not(campaigns):
    outcomes = {"a": UNFINISHED, "b": FAILED}
    first = campaigns(3, seed=1, outcomes=outcomes)
    assert {name for name, _ in first} == {"a", "b", "c"}
    again = campaigns(50 / 60)
    assert again == [run for run in first if run[0] == "a"]


def test_every_round_has_seeds_of_its_own(campaigns):
    seeds = [seed for _, seed in campaigns(30, seed=7)]
    assert len(set(seeds)) == len(seeds)
