"""Rounds in which the ranks make, use and destroy one subgroup after another until one dies.

What depends on the dead rank must name it; what does not must work, also on ranks that have been
told before. `new_group` is called by all of them, always: torch counts the calls in the names. To
splits those that have been told may come no more, from the first of all ranks on: whoever has not
been told depends on the dead rank there, and learns of it though others do not come, or come late.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from operations import Issue, Place
from plan import Making, Step

if TYPE_CHECKING:
    from rank import Rank

# The dead rank does not take part, so whoever has not been told before is told here.
_LAST_USE = Step(-1, "all_reduce", 0, "int64", 3, "SUM", 0, 0, False, False, 0)
_LATE_S = 1.5  # more than a second: by then the others have been told


class Makings:
    """The makings of a plan on one rank."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.told = False
        self.splits = True  # else it comes to no split any more

    def run(self) -> None:
        """Does them; on the victim, until it is killed."""
        plan, own = self.rank.plan, self.rank.rank
        for making in plan.makings:
            if making.use.number == plan.misfortune.step:
                if own == plan.misfortune.victim:
                    self.rank.meet(making.use)
                elif own == plan.late:
                    time.sleep(_LATE_S)
            self.do(making)
        if own == plan.misfortune.victim:
            self.rank.die()  # nothing has become of its misfortune
        self.do(Making("split_group", (plan.groups[0],), _LAST_USE))
        torch.openreg.synchronize()  # what was told of is not told again

    def do(self, making: Making) -> None:
        """Makes the subgroup of this rank, uses it and destroys it."""
        if making.kind == "split_group":
            of_all = making.parts == self.rank.plan.groups
            self.splits &= self.rank.plan.told_ranks_split or not (self.told and of_all)
            if not self.splits:
                return
        group, begin = None, time.monotonic()
        try:
            group = self.make(making)
        except Exception as error:
            everybody = self.rank.plan.groups[0]
            needed = everybody if making.kind == "split_group" else making.parts[0]
            self.note(making, making.kind, needed, begin, error)
            return
        members = making.part_of(self.rank.rank)
        if not members:
            return
        place = Place(group, members, members.index(self.rank.rank), self.rank.device)
        issue, begin = Issue(making.use, place), time.monotonic()
        try:
            self.rank.issue(issue)
            self.rank.look(issue)
        except dist.DistBackendError as error:
            self.note(making, "all_reduce", members, begin, error)
        dist.destroy_process_group(group)

    def make(self, making: Making) -> Any:
        """Calls what makes it."""
        parts = [list(part) for part in making.parts]
        if making.kind == "split_group":
            return dist.split_group(split_ranks=parts)
        return dist.new_group(parts[0], timeout=self.rank.timeout)

    def note(
        self, making: Making, kind: str, needed: tuple[int, ...], begin: float, error: Exception
    ) -> None:
        """Reports a failure of what needs the ranks `needed`."""
        self.told = True
        number = making.use.number
        group = f"of {making.kind} #{number}"
        self.rank.say_failure(number, group, kind, begin, error, needed=needed)
