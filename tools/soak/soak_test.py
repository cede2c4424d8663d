"""The soak finds nothing in a round of each misfortune, and finds what is made wrong."""

import os
import signal
import subprocess
import sys
import textwrap
import time

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


def state_of(pid):
    """The letter that proc(5) gives a process, "" if it has ended (or nobody has asked how)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state in "ZX" else state


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def await_that(condition, what):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_rank_outlives_a_soak_that_is_ended(ending, tmp_path):
    ranks = []

    def one_is_stopped():
        ranks[:] = children_of(process.pid) if process.poll() is None else []
        return "T" in [state_of(rank) for rank in ranks] or process.poll() is not None

    process = subprocess.Popen(
        [sys.executable, soak.__file__, "--only", "stop", "--seed", "7", "--minutes", "10"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        await_that(one_is_stopped, "no rank was stopped")
        assert len(ranks) > 1
        process.send_signal(ending)
        process.wait(60)
        await_that(lambda: not any(map(state_of, ranks)), "a rank has outlived the soak")
    finally:
        process.kill()
        for rank in filter(state_of, ranks):
            os.kill(rank, signal.SIGKILL)
    if ending != signal.SIGKILL:
        assert process.returncode == 128 + ending
        assert list(tmp_path.iterdir()) == []


def test_a_signal_while_a_rank_is_forked_ends_the_soak():
    code = """
        import os, signal, soak, watch
        signal.signal(signal.SIGTERM, soak.end_in_order)
        os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
        watch.Round(soak.make_plan(soak.round_seed(7, 1), "none")).run()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stdout + done.stderr


@pytest.mark.parametrize("where", ["_start", "_resume_if_due"])
def test_no_rank_is_left_by_an_exception(monkeypatch, where):
    real, ranks = getattr(Round, where), []

    def run(self, *arguments):
        if len(self.processes) > 1 and (where == "_start" or self.stopped_at is not None):
            ranks.extend(process.pid for process in self.processes)
            raise RuntimeError("made up")
        return real(self, *arguments)

    monkeypatch.setattr(Round, where, run)
    with pytest.raises(RuntimeError, match="made up"):
        Round(make_plan(soak.round_seed(2026, 0), "stop")).run()
    assert ranks and not any(map(state_of, ranks))
