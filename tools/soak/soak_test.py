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
import torch.distributed as dist
from makings import Makings
from operations import Issue, Place
from plan import MISFORTUNES, Step, make_plan
from rank import Rank
from recovery import Recovery
from watch import Judge, Process, Round, is_torn


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
    monkeypatch.setattr(Rank, "note_failure", lambda self, *_: self.die())
    outcome = Round(plan).run()
    assert any("ended with 17" in fault for fault in outcome.faults)


def plans(kind):
    return [make_plan(soak.round_seed(7, number), kind) for number in range(200)]


def test_exchanges_fill_all_places_of_a_pair_several_times():
    steps = [step for plan in plans("none") for step in plan.steps if step.kind == "exchange"]
    assert {1, 63, 64, 65, 300} <= {step.messages for step in steps}


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("messages", (0, 1, 65))
def test_the_two_of_an_exchange_send_what_the_other_receives(messages, number):
    step = Step(number, "exchange", 0, "int64", 209, "SUM", 0, 2, True, False, 0, messages)
    ranks = [Issue(step, Place(None, (3, 4, 5), own, torch.device("cpu"))) for own in (0, 2)]
    sent, received = [], []
    for issue, other in zip(ranks, (2, 0), strict=True):
        order = issue._messages(other)
        sent.append([(tag, t.tolist()) for call, t, tag in order if call is dist.isend])
        received.append([(tag, t) for call, t, tag in order if call is dist.irecv])
    for issue, incoming, outgoing in zip(ranks, received, reversed(sent), strict=True):
        assert len(incoming) == len(outgoing) == messages
        for tag in (0, 1):
            buffers = [tensor for own_tag, tensor in incoming if own_tag == tag]
            values = [value for own_tag, value in outgoing if own_tag == tag]
            for buffer, value in zip(buffers, values, strict=True):
                expected = [check for output, check in issue.checks if output is buffer]
                assert [check.tolist() for check in expected] == [value]


def test_plans_of_makings_have_every_kind():
    ways = set()
    for plan in plans("kill_making"):
        assert plan.eager and plan.dead == (plan.misfortune.victim,) and plan.late not in plan.dead
        assert plan.misfortune.step in [making.use.number for making in plan.makings]
        for making in plan.makings:
            members = [rank for part in making.parts for rank in part]
            assert members and len(members) == len({*members} & {*range(plan.world)})
            ways.add((making.kind, len(making.parts), len(members) == plan.world))
    assert {("split_group", 1, True), ("split_group", 2, True), ("split_group", 1, False)} <= ways
    assert {("new_group", 1, True), ("new_group", 1, False)} <= ways
    assert {plan.late is None for plan in plans("kill_making")} == {True, False}


def test_a_second_rank_dies_where_the_survivors_shrink():
    for plan in plans("kill_shrinking"):
        assert plan.shrinks and len({*plan.dead}) == 2 and plan.world > 2
    assert not any(plan.second for plan in plans("kill"))


def test_a_survivor_that_is_not_told_while_groups_are_made_is_found(monkeypatch):
    monkeypatch.setattr(Makings, "note", lambda *_: None)
    outcome = Round(make_plan(soak.round_seed(2026, 0), "kill_making")).run()
    assert any("was never told of a death" in fault for fault in outcome.faults)


def test_a_survivor_that_is_not_told_while_it_shrinks_is_found(monkeypatch):
    def lose_unseen(recovery, *_):
        if recovery.rank.rank == recovery.plan.second.victim:
            recovery.rank.die()

    monkeypatch.setattr(Recovery, "shrink_and_lose", lose_unseen)
    outcome = Round(make_plan(soak.round_seed(2026, 0), "kill_shrinking")).run()
    assert any("was never told of a death" in fault for fault in outcome.faults)


def test_a_group_that_fails_without_the_dead_is_found(monkeypatch):
    def use_none(rank, issue):
        raise dist.DistBackendError("made up")

    def is_made_without_the_victim(plan):
        parts = [part for making in plan.makings for part in making.parts]
        return any(plan.misfortune.victim not in part for part in parts) and plan.told_ranks_split

    monkeypatch.setattr(Rank, "issue", use_none)
    plan = next(filter(is_made_without_the_victim, plans("kill_making")))
    outcome = Round(plan).run()
    assert any("failed though nothing is wrong there: made up" in f for f in outcome.faults)


def judged(plan, message, needed, late_s):
    """What is found of a failure on a survivor, `late_s` after a death at the time 100."""
    event = {"event": "failure", "step": 1, "group": "a group", "kind": "all_reduce"}
    event |= {"begin": 99.0, "time": 100.0 + late_s, "error": "DistBackendError"}
    event |= {"message": message, "needed": needed}
    processes = [Process(1000 + rank, -1, -1, code=0) for rank in range(plan.world)]
    for rank, process in enumerate(processes):
        process.ended = 100.0 if rank == plan.dead[-1] else 50.0
        process.events = [] if rank in plan.dead else [event]
    judge = Judge(plan, processes)
    judge.run()
    return judge


def test_the_error_names_who_died_last_of_those_it_needs():
    plan = plans("kill_shrinking")[0]
    first, second = plan.dead
    without_first = [rank for rank in range(plan.world) if rank != first]
    without_both = [rank for rank in without_first if rank != second]
    named = f"rank {second} (pid {1000 + second}) has died"
    judge = judged(plan, named, without_first, 0.25)
    assert judge.faults == [] and judge.reactions_s == [0.25] * (plan.world - 2)
    assert judged(plan, named, without_first, 11).faults[0].find("noticed only after") > 0
    assert judged(plan, named, without_both, 0.25).faults[0].find("nothing is wrong there") > 0
    other = f"rank {first} (pid {1000 + first}) has died"
    assert judged(plan, other, without_first, 0.25).faults[0].find("does not say") > 0


def test_a_store_that_a_killed_rank_wrote_to_is_found_torn(tmp_path):
    file = tmp_path / "store"
    store = dist.FileStore(str(file), 2)
    for number in range(3):
        store.set(f"key {number}", "value" * number)
        store.add("sum", number)
    store.delete_key("key 1")
    store.clone()
    whole = file.read_bytes()
    assert not is_torn(whole) and not is_torn(b"")
    torn = [end for end in range(1, len(whole)) if is_torn(whole[:end])]
    records = len(whole) - 1 - len(torn)  # the ends that are left are those of whole records
    assert 8 <= records <= 20
    assert all(is_torn(whole[:end] + whole) for end in torn)


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
