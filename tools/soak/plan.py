"""What one round of the soak does, as pure data: everything follows from the round's seed.

A plan is a list of steps in one order that every rank keeps, so it cannot deadlock; a rank does the
steps of the groups it is in. A plan has at most one misfortune.
"""

from __future__ import annotations

import dataclasses
import random

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "gather",
    "scatter",
    "all_to_all_single",
    "all_to_all",
    "barrier",
)
MESSAGES = ("send_recv", "exchange", "ring")
# Every rank of the group waits for every other one.
_WAIT_FOR_ALL = ("all_reduce", "all_gather", "all_gather_into_tensor", "barrier")

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "int16")
REDUCTIONS = ("SUM", "MIN", "MAX", "PRODUCT", "AVG")
_SIZES = (0, 1, 2, 3, 7, 64, 1000, 4099, 20_000, 70_001, 300_000)
# Also more than a pair of ranks has places for (64), several times over.
_MESSAGES_AT_ONCE = (1, 2, 63, 64, 65, 129, 300)

# What may go wrong, and how often (of 100 rounds).
MISFORTUNES = {
    "none": 17,
    "kill": 17,
    "kill_making": 6,  # while subgroups are made and destroyed
    "kill_shrinking": 4,  # a second rank, while the survivors shrink
    "exit": 4,
    "raise": 4,
    "leave": 4,
    "die_before_use": 6,
    "no_memory": 4,  # an allocation fails on request, and the rank gives up
    "stop": 6,
    "drop": 3,  # what the rank tells its peers is lost, on request
    "pause": 4,
    "slow": 5,  # the rank's collectives and streams are slow, on request
    "mismatch": 6,
    "truncate": 3,
    "abort": 4,
    "reset": 3,
}
KILLS = ("kill", "kill_making", "kill_shrinking")
DEADLY = (*KILLS, "exit", "raise", "die_before_use", "leave", "no_memory")
LATE = ("stop", "drop")  # the others' deadline ends their operations
HARMLESS = ("none", "pause", "slow")


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation of one group."""

    number: int
    kind: str
    group: int  # index in Plan.groups
    dtype: str
    count: int  # elements of a part
    reduction: str
    root: int  # index in the group; of a send_recv: the sender; of an exchange: one of the two
    peer: int  # index in the group; the receiver; the other one
    asynchronous: bool
    side_stream: bool
    lag: int  # steps until the result is looked at
    messages: int = 0  # of an exchange: each way, all at once


@dataclasses.dataclass(frozen=True)
class Misfortune:
    """What goes wrong: at a step of the victim, after a delay."""

    kind: str
    victim: int
    step: int
    delay_us: int


@dataclasses.dataclass(frozen=True)
class Making:
    """A subgroup, or several disjoint ones, that are made, used once and destroyed."""

    kind: str  # "split_group", which all ranks of the world take part in, or "new_group"
    parts: tuple[tuple[int, ...], ...]  # one of a new_group
    use: Step  # the first operation of each

    def part_of(self, rank: int) -> tuple[int, ...]:
        """The members of the rank's own subgroup; empty if it has none."""
        return next((part for part in self.parts if rank in part), ())


@dataclasses.dataclass(frozen=True)
class Plan:
    """One round."""

    seed: int
    world: int
    groups: tuple[tuple[int, ...], ...]  # [0] is the world
    steps: tuple[Step, ...]
    misfortune: Misfortune
    timeout_s: float
    eager: bool  # groups are made with a device, so they meet at once
    shrinks: bool  # the survivors of a death go on in a smaller group
    hasty: bool = False  # each shrinks once it is through, and may end what others still do
    makings: tuple[Making, ...] = ()  # instead of steps
    told_ranks_split: bool = False  # see makings.py
    late: int | None = None  # comes late to the making in which the victim dies
    second: Misfortune | None = None  # while the survivors shrink, at no step

    def affected(self, group: int) -> bool:
        """Says whether the misfortune may fail operations of the group."""
        kind = self.misfortune.kind
        if kind in HARMLESS:
            return False
        if kind in ("mismatch", "abort"):
            return group == self.steps[self.misfortune.step].group
        return self.misfortune.victim in self.groups[group]

    @property
    def dead(self) -> tuple[int, ...]:
        """The ranks that die, in this order."""
        if self.misfortune.kind not in DEADLY:
            return ()
        return (self.misfortune.victim, *([self.second.victim] if self.second else []))


def _group(rng: random.Random, world: int) -> tuple[int, ...]:
    return tuple(sorted(rng.sample(range(world), rng.randint(1, world))))


def _step(rng: random.Random, number: int, groups: list[tuple[int, ...]], kinds: tuple[str, ...]):
    group = rng.choice([0, rng.randrange(len(groups))])
    size = len(groups[group])
    kind = rng.choice(kinds)
    if size < 2 and kind in MESSAGES:
        kind = "barrier"
    dtype = rng.choice(DTYPES)
    reduction = rng.choice(REDUCTIONS)
    if reduction == "AVG" and "int" in dtype:
        reduction = "SUM"
    count = rng.choice(_SIZES)
    if rng.random() < 0.5:
        count = min(count, 5000) + rng.randint(0, 3)
    root = rng.randrange(size)
    peer = rng.choice([i for i in range(size) if i != root] or [0])
    return Step(
        number=number,
        kind=kind,
        group=group,
        dtype=dtype,
        count=count,
        reduction=reduction,
        root=root,
        peer=peer,
        asynchronous=rng.random() < 0.6,
        side_stream=rng.random() < 0.25,
        lag=rng.choice((0, 0, 1, 3, 6)),
        messages=rng.choice(_MESSAGES_AT_ONCE),
    )


def _parts(rng: random.Random, world: int) -> tuple[tuple[int, ...], ...]:
    """Disjoint groups, perhaps not of all ranks."""
    colors = [rng.choice((None, 0, 0, 1)) for _ in range(world)]
    parts = [tuple(r for r in range(world) if colors[r] == color) for color in (0, 1)]
    return tuple(part for part in parts if part) or (tuple(range(world)),)


def _making(rng: random.Random, number: int, world: int) -> Making:
    kind = rng.choice(("split_group", "split_group", "new_group"))
    parts: tuple[tuple[int, ...], ...] = (tuple(range(world)),)
    if rng.random() < 0.6:
        parts = _parts(rng, world) if kind == "split_group" else (_group(rng, world),)
    return Making(kind, parts, _step(rng, number, [parts[0]], ("all_reduce",)))


def _plan_of_makings(rng: random.Random, seed: int, world: int) -> Plan:
    makings = tuple(_making(rng, number, world) for number in range(rng.randint(4, 16)))
    misfortune = Misfortune(
        kind="kill_making",
        victim=rng.randrange(world),
        step=rng.randrange(len(makings)),
        delay_us=rng.choice((300, 1000, 3000, 10_000)) * rng.randint(0, 1000) // 1000,
    )
    others = [rank for rank in range(world) if rank != misfortune.victim]
    return Plan(
        seed=seed,
        world=world,
        groups=(tuple(range(world)),),
        steps=(),
        misfortune=misfortune,
        timeout_s=60.0,
        eager=True,
        shrinks=world > 2,
        makings=makings,
        hasty=rng.random() < 0.5,
        told_ranks_split=rng.random() < 0.5,
        late=rng.choice(others) if rng.random() < 0.25 else None,
    )


def _second(rng: random.Random, world: int, first: int) -> Misfortune:
    return Misfortune(
        kind="kill_shrinking",
        victim=rng.choice([rank for rank in range(world) if rank != first]),
        step=-1,
        delay_us=rng.choice((300, 1000, 3000, 10_000)) * rng.randint(0, 1000) // 1000,
    )


def make_plan(seed: int, only: str | None = None) -> Plan:
    """The round of this seed; `only` names its misfortune instead of leaving it to chance."""
    rng = random.Random(seed)
    world = rng.choice((2, 2, 3, 3, 4, 5))
    chance = rng.choices(list(MISFORTUNES), list(MISFORTUNES.values()))[0]
    kind = only or chance
    if kind == "kill_making":
        return _plan_of_makings(rng, seed, world)
    kills_two = kind == "kill_shrinking"
    world += kills_two
    waits_alike = kind in LATE
    groups = [tuple(range(world))]
    groups += [_group(rng, world) for _ in range(0 if waits_alike else rng.randint(0, 4))]
    kinds = _WAIT_FOR_ALL if waits_alike else COLLECTIVES + MESSAGES
    steps = [_step(rng, i, groups, kinds) for i in range(rng.randint(8, 40))]
    victim = rng.randrange(world)
    candidates = [s.number for s in steps if victim in groups[s.group] and s.number > 0] or [0]
    if kind in ("mismatch", "abort"):
        candidates = [
            s.number
            for s in steps
            if victim in groups[s.group] and len(groups[s.group]) > 1 and s.kind in _WAIT_FOR_ALL
        ]
    if kind in ("mismatch", "abort") and not candidates:
        kind = "none"
        candidates = [0]
    eager = kind != "die_before_use" and (rng.random() < 0.6 or kills_two)
    misfortune = Misfortune(
        kind=kind,
        victim=victim,
        step=rng.choice(candidates),
        delay_us=rng.choice((0, 20, 100, 400, 2000, 10_000)) + rng.randint(0, 50),
    )
    return Plan(
        seed=seed,
        world=world,
        groups=tuple(groups),
        steps=tuple(steps),
        misfortune=misfortune,
        timeout_s=1.5 if waits_alike else 60.0,
        eager=eager,
        shrinks=eager and kind in (*KILLS, "exit", "raise", "no_memory") and world > 2,
        hasty=rng.random() < 0.5,
        second=_second(rng, world, victim) if kills_two else None,
    )
