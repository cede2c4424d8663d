"""Ranges and marks of a program's own, under the names of ``torch.cuda.nvtx``.

They go where openreg's events go: into torch's profiler, and its traces.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.autograd.profiler import record_function

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_open = threading.local()


def range_push(msg: str) -> int:
    """Opens a range of the calling thread inside those that are open. Returns its depth, from 0."""
    ranges: list[record_function] = _open.__dict__.setdefault("ranges", [])
    ranges.append(record_function(msg))
    ranges[-1].__enter__()  # type: ignore[no-untyped-call]
    return len(ranges) - 1


def range_pop() -> int:
    """Closes the innermost range of the calling thread. Returns its depth; -2 if there is none."""
    ranges: list[record_function] = _open.__dict__.setdefault("ranges", [])
    if not ranges:
        return -2
    ranges.pop().__exit__(None, None, None)
    return len(ranges)


def range_start(msg: str) -> record_function:
    """Opens a range that need not be nested. Returns what closes it."""
    started = record_function(msg)
    started.__enter__()  # type: ignore[no-untyped-call]
    return started


def range_end(range_id: record_function) -> None:
    """Closes a range that range_start opened."""
    range_id.__exit__(None, None, None)


def mark(msg: str) -> None:
    """A range without length."""
    with record_function(msg):
        pass


@contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:  # noqa: A001
    """Context manager and decorator: a range named ``msg.format(*args, **kwargs)``."""
    with record_function(msg.format(*args, **kwargs)):
        yield
