"""The soak finds nothing in a round of each misfortune, and finds what is made wrong."""

import oracle
import pytest
import soak
import torch
from operations import Issue
from plan import MISFORTUNES, make_plan
from rank import Rank
from watch import Round


@pytest.mark.parametrize("misfortune", sorted(MISFORTUNES))
def test_a_round(misfortune):
    outcome = Round(make_plan(soak.round_seed(2026, 0), misfortune)).run()
    assert outcome.faults == [], outcome.logs


def test_plans_follow_from_their_seeds():
    for number in range(50):
        seed = soak.round_seed(7, number)
        assert make_plan(seed) == make_plan(seed)
    assert make_plan(1) != make_plan(2)


def test_a_wrong_value_is_found(monkeypatch):
    real = Issue.run

    def run(issue):
        real(issue)
        issue.checks = [(tensor, expected + 1) for tensor, expected in issue.checks]

    monkeypatch.setattr(Issue, "run", run)
    outcome = Round(make_plan(soak.round_seed(7, 1), "none")).run()
    assert any("elements are wrong" in fault for fault in outcome.faults)


def test_an_error_where_nothing_is_wrong_is_found(monkeypatch):
    monkeypatch.setattr(Rank, "look", lambda *_: (_ for _ in ()).throw(RuntimeError("made up")))
    outcome = Round(make_plan(soak.round_seed(7, 1), "none")).run()
    assert any("failed though nothing is wrong there: made up" in f for f in outcome.faults)


def test_a_rank_that_is_never_noticed_to_be_dead_is_found(monkeypatch):
    plan = make_plan(soak.round_seed(7, 3), "kill")
    monkeypatch.setattr(Rank, "note_failure", lambda self, *_: self._die())
    outcome = Round(plan).run()
    assert any("ended with 17" in fault for fault in outcome.faults)


def test_the_oracle_reduces_in_the_steps_dtype():
    step = make_plan(3).steps[0]
    parts = [oracle.values(step, rank, 5) for rank in range(3)]
    assert all(part.dtype == torch.int64 and part.min() >= 1 for part in parts)
    assert oracle.reduced(step, parts).dtype == oracle.dtype_of(step)
