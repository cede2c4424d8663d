"""Chaos soak: random collectives on random groups, with deaths, stops, faults and an oracle.

    tools/bazel run //tools/soak -- --minutes 60 --seed 7

Rounds follow from the seed. A round that shows a wrong value, a hang, a crash, a misleading error
or something left behind ends the soak with its seed; --round replays that one round.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import os
import random
import signal
import sys
import time
import types

import torch
import torch_openreg  # noqa: F401  (registers the backend; the ranks are forked with it)
from plan import MISFORTUNES, Plan, make_plan
from watch import ENDINGS, Outcome, Round

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000


def own_namespaces() -> bool:
    """Gives this process a network and a /dev/shm of its own: what is left there is the soak's.

    That /dev/shm has 1 MB, as in small containers. Needs a privilege; False without it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return (
        libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET) == 0
        and libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
        and libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=1m") == 0
    )


def left_behind() -> set[str]:
    """Abstract sockets (of this network) and files in /dev/shm."""
    with open("/proc/net/unix") as table:
        sockets = {line.split()[-1] for line in table if " @" in line}
    return sockets | {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}


def round_seed(seed: int, number: int) -> int:
    """The seed of a round of a soak."""
    return random.Random(f"{seed}/{number}").getrandbits(48)


def describe(plan: Plan) -> str:
    """A plan in a line."""
    misfortune, second = plan.misfortune, plan.second
    steps = f"{len(plan.makings)} makings" if plan.makings else f"{len(plan.steps)} steps"
    text = (
        f"{plan.world} ranks, groups {list(plan.groups)}, {steps}, "
        f"{misfortune.kind} of rank {misfortune.victim} at step {misfortune.step} "
        f"after {misfortune.delay_us} us"
    )
    if plan.late is not None:
        text += f", rank {plan.late} comes late"
    if second:
        text += f", then of rank {second.victim} after {second.delay_us} us of the shrink"
    return text


class Tally:
    """What all rounds gave."""

    def __init__(self) -> None:
        self.rounds: collections.Counter[str] = collections.Counter()
        # With the number of the round.
        self.reactions: dict[str, list[tuple[float, int]]] = collections.defaultdict(list)
        self.lateness: list[float] = []
        self.operations = 0
        self.shrunk = 0
        self.parted: list[int] = []
        self.torn: list[int] = []

    def add(self, number: int, plan: Plan, outcome: Outcome) -> None:
        """Adds a round."""
        kind = plan.misfortune.kind
        self.rounds[kind] += 1
        self.reactions[kind] += [(time_s, number) for time_s in outcome.reactions_s]
        self.lateness += outcome.lateness_s
        self.operations += outcome.operations
        self.shrunk += outcome.shrunk
        if outcome.parted:
            self.parted.append(number)
        if outcome.torn and plan.dead:
            self.torn.append(number)

    def show(self) -> None:
        """Prints the sums."""
        print(f"{sum(self.rounds.values())} rounds: {dict(self.rounds)}")
        print(f"{self.operations} operations, {self.shrunk} rounds went on in a smaller group")
        if self.parted:
            print(f"in rounds {self.parted} a shrink failed on some ranks and not on others")
        if self.torn:
            print(f"rounds {self.torn} do not count: a rank was killed writing to the FileStore")
        for kind, times in sorted(self.reactions.items()):
            if times:
                times.sort()
                middle, (most, where) = times[len(times) // 2][0], times[-1]
                late = sum(time_s > 1.0 for time_s, _ in times)
                print(
                    f"  {kind}: {len(times)} errors, after {1e3 * middle:.0f} ms (median), "
                    f"{1e3 * most:.0f} ms (largest, round {where}), {late} after more than 1 s"
                )
        if self.lateness:
            least, most = 1e3 * min(self.lateness), 1e3 * max(self.lateness)
            print(f"  deadlines of a stopped rank's peers: {least:+.0f} to {most:+.0f} ms")


def run_round(
    seed: int, number: int, only: str | None, baseline: set[str] | None
) -> tuple[Plan, Outcome]:
    """Runs one round; `only` and `baseline` as in main."""
    plan = make_plan(round_seed(seed, number), only)
    outcome = Round(plan).run()
    if outcome.torn and plan.dead:
        outcome.faults.clear()
        outcome.reactions_s.clear()
    if baseline is not None:
        left = left_behind() - baseline
        if left:
            outcome.faults.append(f"left behind: {sorted(left)}")
    return plan, outcome


def report(seed: int, number: int, only: str | None, plan: Plan, outcome: Outcome) -> None:
    """Prints what went wrong, and how to replay it."""
    print(f"FAILED in round {number}: {describe(plan)}")
    for fault in outcome.faults:
        print(f"  {fault}")
    for rank, log in outcome.logs.items():
        if log:
            print(f"---- rank {rank} wrote:\n{log[-6000:]}")
    extra = f" --only {only}" if only else ""
    print(
        f"seed {seed}, round {number}; replay: tools/bazel run //tools/soak -- "
        f"--seed {seed} --round {number}{extra}"
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--round", type=int, help="this round only")
    parser.add_argument("--rounds", type=int, help="so many rounds instead of --minutes")
    parser.add_argument("--only", choices=sorted(MISFORTUNES), help="only this misfortune")
    parser.add_argument("--keep-going", action="store_true", help="do not end at a failure")
    return parser.parse_args(arguments)


def end_in_order(number: int, _frame: types.FrameType | None) -> None:
    """Ends the soak at a signal: by an exception, so that its ranks end and its files go."""
    print(f"soak: ended by {signal.Signals(number).name}", flush=True)
    sys.exit(128 + number)


def main(arguments: list[str]) -> int:
    """Runs the rounds; returns the exit status."""
    options = parse(arguments)
    for ending in ENDINGS:
        signal.signal(ending, end_in_order)
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(32)
    torch.set_num_threads(1)
    baseline = left_behind() if own_namespaces() else None
    counted = "" if baseline is not None else " (not privileged: what is left is not counted)"
    print(f"soak: seed {seed}{counted}", flush=True)
    tally, failed = Tally(), 0
    end = time.monotonic() + 60 * options.minutes
    number = options.round if options.round is not None else 0
    while True:
        plan, outcome = run_round(seed, number, options.only, baseline)
        tally.add(number, plan, outcome)
        if outcome.faults:
            failed += 1
            report(seed, number, options.only, plan, outcome)
            if not options.keep_going:
                break
        number += 1
        if options.round is not None or number == options.rounds:
            break
        if options.rounds is None and time.monotonic() >= end:
            break
        sys.stdout.flush()
    tally.show()
    print(f"soak: {failed} of {sum(tally.rounds.values())} rounds failed, seed {seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
