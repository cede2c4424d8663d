"""What the survivors of a death do: they shrink the world, perhaps lose another rank, and go on."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from operations import Issue, Place
from plan import Step

if TYPE_CHECKING:
    from rank import Rank

_PATIENCE = datetime.timedelta(seconds=60)
# Far more than a rank that is about to die takes part in.
_MOST_OPERATIONS = 100_000


class Recovery:
    """Goes on after the plan's deaths, on a rank that survives them or dies second."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.plan = rank.plan
        # The default group's may be another one after it has shrunk.
        self.store = dist.group.WORLD.get_group_store()

    def run(self) -> None:
        """Shrinks the world and goes on in what is left.

        All survivors do, also one that was through with its steps before: a message between others
        is nothing to it.
        """
        first, second = self.plan.misfortune.victim, self.plan.second
        if not self.plan.hasty:
            self.meet_at("through", self.without(first))
        group = self.shrink_twice(first, second.victim) if second else self.shrink([first])
        self.go_on(group, self.without(*self.plan.dead))

    def without(self, *dead: int) -> tuple[int, ...]:
        """The others, as ranks of the world that the round began with."""
        return tuple(rank for rank in range(self.plan.world) if rank not in dead)

    def meet_at(self, name: str, ranks: tuple[int, ...], says: str = "1") -> list[str]:
        """Waits until all of the ranks are here; returns what they say, in their order."""
        self.store.set(f"{name}/{self.rank.rank}", says)
        keys = [f"{name}/{rank}" for rank in ranks]
        self.store.wait(keys, _PATIENCE)
        return [self.store.get(key).decode() for key in keys]

    def shrink(self, dead: list[int]) -> Any:
        """The default group, which is a smaller one now."""
        return dist.shrink_group(dead, shrink_flags=dist.distributed_c10d.SHRINK_ABORT)

    def shrink_twice(self, first: int, second: int) -> Any:
        """Shrinks without the first, while the second dies; then without it as well.

        Ranks that have shrunk the world and ranks whose shrink has failed do not meet any more:
        such survivors make a new world.
        """
        between, left = self.without(first), self.without(first, second)
        group = self.shrink_and_lose(first, between)
        shrunk = "no" if group is None else "yes"
        all_shrunk = self.meet_at("shrunk", left, shrunk)
        if all_shrunk.count(shrunk) == len(left):
            return self.shrink([first, second] if group is None else [between.index(second)])
        self.rank.say("parted", shrunk=dict(zip(left, all_shrunk, strict=True)))
        dist.destroy_process_group()
        dist.init_process_group(
            "occl",
            store=dist.PrefixStore("new", self.store),
            rank=left.index(self.rank.rank),
            world_size=len(left),
            timeout=self.rank.timeout,
            device_id=self.rank.device,
        )
        return dist.group.WORLD

    def shrink_and_lose(self, first: int, members: tuple[int, ...]) -> Any:
        """Shrinks without the first and uses what has come of it, until an error tells of the end.

        Returns the smaller group, None if there has come none of it. Does not return on the rank
        that dies.
        """
        second = self.plan.second
        assert second is not None
        if self.rank.rank == second.victim:
            self.rank.kill_after(second.delay_us / 1e6)
        group, kind, begin = None, "shrink_group", time.monotonic()
        try:
            group = self.shrink([first])
            kind = "all_reduce"
            for number in range(_MOST_OPERATIONS):
                begin = time.monotonic()
                self.use(number, kind, group, members)
        except dist.DistBackendError as error:
            self.rank.say_failure(-1, "the shrunk world", kind, begin, error, needed=members)
        if self.rank.rank == second.victim:
            self.rank.die()
        return group

    def use(self, number: int, kind: str, group: Any, members: tuple[int, ...]) -> None:
        """An operation of the group, whose ranks are not those of the world any more."""
        ranks = tuple(range(len(members)))
        place = Place(group, ranks, members.index(self.rank.rank), self.rank.device)
        count = 1000 * (number % 3) + 3
        issue = Issue(
            Step(1000 + number, kind, 0, "int64", count, "SUM", 0, 0, True, False, 0), place
        )
        issue.run()
        self.rank.look(issue)

    def go_on(self, group: Any, members: tuple[int, ...]) -> None:
        """Works in what is left."""
        for number, kind in enumerate(("all_reduce", "all_gather", "all_reduce")):
            self.use(number, kind, group, members)
        self.rank.say("went_on", group=members)
