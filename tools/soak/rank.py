"""One rank of a round: does its steps, looks at the results, and says what it saw.

Runs in a process forked for it. Everything it has to say goes into its report, as lines of JSON.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import datetime
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import torch
import torch.distributed as dist
from makings import Makings
from operations import Issue, Place
from plan import KILLS, Plan, Step
from recovery import Recovery
from torch_openreg import testing

# A wait on the host goes on this much longer than the operation's own deadline, which must be what
# ends it.
_GRACE_S = 20.0
# Errors of earlier operations may come up before a step is done.
_TRIES = 10


class WrongValueError(Exception):
    """A result differs from what it must be."""


class Rank:
    """The program of one rank."""

    def __init__(self, plan: Plan, rank: int, store_file: str, report: int) -> None:
        self.plan = plan
        self.rank = rank
        self.report = os.fdopen(report, "w", buffering=1)
        self.device = torch.device("openreg", 0)
        self.timeout = datetime.timedelta(seconds=plan.timeout_s)
        self.pending: collections.deque[tuple[int, float, Issue]] = collections.deque()
        self.failed: set[int] = set()  # groups
        self.groups: list[Any] = []
        self.side: Any = None
        self.store_file = store_file
        self.faults = contextlib.ExitStack()

    def say(self, event: str, **more: Any) -> None:
        """Reports an event to the parent."""
        self.report.write(json.dumps({"event": event, "time": time.monotonic(), **more}) + "\n")

    # ---- the round

    def run(self) -> None:
        """Does the round; returns when this rank is through."""
        plan, misfortune = self.plan, self.plan.misfortune
        dist.init_process_group(
            "occl",
            init_method=f"file://{self.store_file}",
            rank=self.rank,
            world_size=plan.world,
            timeout=self.timeout,
            device_id=self.device if plan.eager else None,
        )
        self.groups = [dist.group.WORLD]
        self.groups += [
            dist.new_group(list(members), timeout=self.timeout) for members in plan.groups[1:]
        ]
        self.side = torch.openreg.Stream()
        self.say("ready")
        if misfortune.kind == "die_before_use" and misfortune.victim == self.rank:
            time.sleep(misfortune.delay_us / 1e6)
            self.die()
        self.say("begun")
        if plan.makings:
            Makings(self).run()
        for step in plan.steps:
            if misfortune.victim == self.rank and misfortune.step == step.number:
                self.meet(step)
            if self.rank in plan.groups[step.group]:
                self.do(step)
        self.settle(0)
        self.finish()

    def finish(self) -> None:
        """What comes after the steps: perhaps a smaller group, then the end."""
        self.faults.close()
        if self.plan.shrinks:
            self.recover()
        begin = time.monotonic()
        self.say("leaves")
        dist.destroy_process_group()
        self.say("end", destroy_s=time.monotonic() - begin)

    def drain(self) -> None:
        """Takes what failed operations that nobody waited for have left on their streams."""
        for _ in range(10):
            try:
                torch.openreg.synchronize()
            except Exception as error:
                self.note_named(self.plan.steps[-1], time.monotonic(), error)
            else:
                return

    def recover(self) -> None:
        """Goes on without the victim.

        What streams hold of groups that failed goes with them where this rank has been told.
        """
        victim = self.plan.misfortune.victim
        if self.rank == victim:
            self.die()  # nothing has become of its misfortune
        both = {self.rank, victim}
        shared = {i for i, members in enumerate(self.plan.groups) if both <= {*members}}
        if self.plan.steps and not shared <= self.failed:
            self.drain()
        Recovery(self).run()

    # ---- steps

    def do(self, step: Step) -> None:
        """One step, and a look at what is due."""
        members = self.plan.groups[step.group]
        place = Place(self.groups[step.group], members, members.index(self.rank), self.device)
        issue = Issue(step, place)
        for _ in range(_TRIES):
            if step.group in self.failed:
                return
            begin = time.monotonic()
            try:
                self.issue(issue)
            except torch.OutOfMemoryError:
                misfortune = self.plan.misfortune
                if misfortune.kind != "no_memory" or misfortune.victim != self.rank:
                    raise  # nobody asked for it
                self.die()
            except Exception as error:
                self.note_named(step, begin, error)  # and go on with it, if it is another's
            else:
                self.pending.append((step.number, begin, issue))
                break
        self.settle(step.lag)

    def issue(self, issue: Issue) -> None:
        """Issues the operation on the step's stream."""
        if not issue.step.side_stream:
            issue.run()
            return
        self.side.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(self.side):
            issue.run()
        torch.openreg.current_stream().wait_stream(self.side)

    def settle(self, lag: int) -> None:
        """Looks at all results but the last `lag`."""
        while len(self.pending) > lag:
            _, begin, issue = self.pending.popleft()
            for _ in range(_TRIES):
                if issue.step.group in self.failed:
                    break
                try:
                    self.look(issue)
                except WrongValueError:
                    raise
                except Exception as error:
                    self.note_named(issue.step, begin, error)  # and look again
                else:
                    break

    def look(self, issue: Issue) -> None:
        """Waits for the results and compares them."""
        for work in issue.works:
            work.wait(datetime.timedelta(seconds=self.plan.timeout_s + _GRACE_S))
        if not issue.works:
            torch.openreg.synchronize()
        for tensor, expected in issue.checks:
            found = tensor.cpu()
            if not torch.equal(found, expected):
                wrong = (found != expected).nonzero().flatten()
                raise WrongValueError(
                    f"{issue.step} on rank {self.rank}: {wrong.numel()} of {expected.numel()} "
                    f"elements are wrong, the first at {wrong[:1].tolist()}: expected "
                    f"{expected[wrong[:3]].tolist()}, found {found[wrong[:3]].tolist()}"
                )

    def note_named(self, step: Step, begin: float, error: Exception) -> None:
        """Notes a failure of the groups that it names: late ones come up in any group's step."""
        named = [
            index
            for index, members in enumerate(self.plan.groups)
            if self.rank in members and f"in group '{self.groups[index].group_name}'" in str(error)
        ]
        for group in named or [step.group]:
            if group not in self.failed or not named:
                self.note_failure(step, group, begin, error)

    def note_failure(self, step: Step, group: int, begin: float, error: Exception) -> None:
        """Reports a failure; nothing more is done in the group."""
        self.failed.add(group)
        self.say_failure(step.number, group, step.kind, begin, error)

    def say_failure(
        self,
        step: int,
        group: int | str,
        kind: str,
        begin: float,
        error: Exception,
        needed: tuple[int, ...] | None = None,
    ) -> None:
        """Reports a failure; `needed`: the ranks that it depends on, where the group is new."""
        self.say(
            "failure",
            step=step,
            group=group,
            kind=kind,
            begin=begin,
            error=type(error).__name__,
            message=str(error),
            needed=needed,
        )

    # ---- misfortunes

    def meet(self, step: Step) -> None:
        """The misfortune, where it is this rank's to bring it about."""
        misfortune = self.plan.misfortune
        kind, delay_s = misfortune.kind, misfortune.delay_us / 1e6
        if kind in ("none", "die_before_use"):
            return
        self.say("misfortune", kind=kind)  # to stop or pause it is the parent's part
        if kind in KILLS:
            self.kill_after(delay_s)
        elif kind == "exit":
            threading.Timer(delay_s, self.die).start()
        elif kind == "raise":
            sys.last_value = RuntimeError("the soak's")
            atexit._run_exitfuncs()
            self.die()
        elif kind == "leave":
            self.settle(0)
            dist.destroy_process_group()
            self.die()
        elif kind in ("slow", "drop", "truncate", "reset", "no_memory"):
            self._ask_for_faults(kind)
        elif kind == "abort":
            backend = self.groups[step.group]._get_backend(self.device)
            threading.Timer(delay_s, backend.abort).start()
        elif kind == "mismatch":
            self._disagree(step)

    def kill_after(self, delay_s: float) -> None:
        """Ends the process wherever it is then, as SIGKILL does: the signal has no handler."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, max(delay_s, 1e-6))

    def _ask_for_faults(self, kind: str) -> None:
        self.settle(0)
        chances: dict[str, dict[str, float]] = {
            "slow": {"delay": 0.3, "delay_s": 0.02, "slow_stream": 0.2, "slow_stream_s": 0.003},
            "drop": {"drop": 1.0},
            "truncate": {"truncate": 1.0},
            "reset": {"reset": 1.0},
            "no_memory": {"failing_allocation": 0.3},
        }
        self.faults.enter_context(testing.faults(seed=self.plan.seed, **chances[kind]))

    def _disagree(self, step: Step) -> None:
        """Calls another operation than the others of the group do."""
        self.settle(0)
        tensor = torch.zeros(step.count + 1, dtype=torch.int32, device=self.device)
        begin = time.monotonic()
        try:
            work = dist.all_reduce(
                tensor, dist.ReduceOp.MAX, self.groups[step.group], async_op=True
            )
            work.wait(datetime.timedelta(seconds=self.plan.timeout_s + _GRACE_S))
        except Exception as error:
            self.note_failure(step, step.group, begin, error)

    def die(self) -> None:
        """Ends the process at once."""
        self.report.flush()
        os._exit(17)


def run_rank(plan: Plan, rank: int, store_file: str, report: int, log: int) -> None:
    """Never returns."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    torch.set_num_threads(1)
    program = Rank(plan, rank, store_file, report)
    code = 0
    try:
        program.run()
    except BaseException as error:
        import traceback

        traceback.print_exc()
        program.say("broken", error=type(error).__name__, message=str(error))
        code = 3
    sys.stderr.flush()
    program.report.flush()
    os._exit(code)
