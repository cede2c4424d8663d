"""Faults on request: see how a program takes it when a collective or the device misbehaves."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

from torch_openreg import _C

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Faults", "faults"]


class Faults:
    """The faults that are in force: their seed, and how many there have been of each kind."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._final: dict[str, int] | None = None

    @property
    def seed(self) -> int:
        """Given to :func:`faults`, it brings the same faults again."""
        return self._seed

    def counts(self) -> dict[str, int]:
        """How many faults of each kind this process has met so far; after the block: in it."""
        return dict(_C._fault_counts() if self._final is None else self._final)

    def _close(self) -> None:
        self._final = _C._fault_counts()


@contextlib.contextmanager
def faults(
    *,
    seed: int | None = None,
    delay: float = 0.0,
    delay_s: float = 0.05,
    drop: float = 0.0,
    truncate: float = 0.0,
    reset: float = 0.0,
    slow_stream: float = 0.0,
    slow_stream_s: float = 0.005,
    failing_allocation: float = 0.0,
) -> Iterator[Faults]:
    """Inside the block, this process's collectives and device misbehave now and then.

    All faults are probabilities from 0 to 1. Use it on the ranks that are to misbehave: the others
    then see what they would see of a rank in trouble. Blocks do not nest: the inner one replaces
    the outer one's faults, and its end ends all.

    What befalls an operation follows from the seed, the group, the rank, the peer and the number of
    the operation in its group, so a run with the same seed meets the same faults. (Slow streams and
    failing allocations are counted for the process: there the order of its threads matters too.) An
    exception that leaves the block gets a note with the seed.

    Args:
        seed: replays the faults of an earlier run; None: a new one.
        delay: per collective and sent message: its peers hear of it ``delay_s`` seconds late.
        delay_s: seconds, 0 to 600.
        drop: per collective and sent message: its peers never hear of it. They get a
            ``DistBackendError`` at their timeout that names this rank.
        truncate: per collective and sent message: one element less is announced than the others
            expect. All get a ``DistBackendError`` that names both counts.
        reset: per collective and sent message: the group's connection breaks, for all its ranks.
        slow_stream: per piece of work that is given to a stream of the device: the stream does
            nothing for ``slow_stream_s`` seconds first.
        slow_stream_s: seconds, 0 to 10.
        failing_allocation: per allocation of device memory: ``torch.OutOfMemoryError``.

    Yields:
        The :class:`Faults` in force.

    Raises:
        ValueError: a number is out of its range, or delay + drop + truncate + reset exceeds 1.
        NotImplementedError: another runtime or collective library is built in, without faults.
    """
    if seed is None:
        seed = random.SystemRandom().getrandbits(63)
    elif not 0 <= seed < 1 << 64:
        raise ValueError(f"seed is {seed}, expected 0 to 2**64 - 1")
    try:
        _C._set_collective_faults(
            seed, delay=delay, delay_s=delay_s, drop=drop, truncate=truncate, reset=reset
        )
        _C._set_device_faults(
            seed,
            slow_stream=slow_stream,
            slow_stream_s=slow_stream_s,
            failing_allocation=failing_allocation,
        )
        current = Faults(seed)
        try:
            yield current
        except BaseException as error:
            error.add_note(f"in torch_openreg.testing.faults(seed={seed}, ...)")
            raise
        finally:
            current._close()
    finally:
        _C._set_collective_faults(seed, delay=0, delay_s=0, drop=0, truncate=0, reset=0)
        _C._set_device_faults(seed, slow_stream=0, slow_stream_s=0, failing_allocation=0)
