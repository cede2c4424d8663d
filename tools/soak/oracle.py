"""What each operation must give: computed on the CPU from what every rank puts in.

Values are small integers, so that every order of a reduction gives the same bits, and differ by
step, rank and index.
"""

from __future__ import annotations

import functools

import torch
from plan import Step


def dtype_of(step: Step) -> torch.dtype:
    """The dtype of the step's tensors."""
    return getattr(torch, step.dtype)


def values(step: Step, rank: int, count: int, salt: int = 0) -> torch.Tensor:
    """What `rank` puts in, as int64."""
    small = 2 if step.reduction == "PRODUCT" else 7
    index = torch.arange(count, dtype=torch.int64)
    return (index * 3 + rank * 5 + step.number * 11 + salt * 13 + (index >> 7)) % small + 1


def contribution(step: Step, rank: int, count: int, salt: int = 0) -> torch.Tensor:
    """What `rank` puts in, in the step's dtype."""
    return values(step, rank, count, salt).to(dtype_of(step))


def reduced(step: Step, parts: list[torch.Tensor]) -> torch.Tensor:
    """The reduction of int64 `parts`, in the step's dtype."""
    dtype = dtype_of(step)
    if step.reduction == "AVG":
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return (functools.reduce(torch.add, parts).to(wide) / len(parts)).to(dtype)
    combine = {
        "SUM": torch.add,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "PRODUCT": torch.mul,
    }[step.reduction]
    return functools.reduce(combine, parts).to(dtype)


def uneven(step: Step, sender: int, receiver: int) -> int:
    """How many elements go from one to the other in an all-to-all with splits."""
    return (step.count + sender * 3 + receiver * 7 + step.number) % (step.count + 2)
