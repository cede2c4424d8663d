"""What the tests of the sanitizer share.

In a wrong program the comment `first` marks the line of the first operation, `second` that of the
second, `freed` that where memory was given back.
"""

import gc
import linecache

import torch
from torch_openreg.openreg import sanitizer

N = 256


def settled():
    """A fixture: the sanitizer is on, and what one test leaves behind does not reach the next."""
    sanitizer.enable()
    settle()
    yield
    settle()
    sanitizer.disable()


def settle():
    """What the last program has left behind is over."""
    gc.collect()
    torch.openreg.synchronize("openreg:0")
    torch.openreg.synchronize("openreg:1")
    sanitizer.clear()


def side():
    """A stream that waits for what has been issued so far."""
    stream = torch.openreg.Stream()
    stream.wait_stream(torch.openreg.current_stream())
    return stream


def ones(*shape):
    return torch.ones(*(shape or (N,)), device="openreg")


def is_marked(place, mark):
    return place is not None and f"# {mark}" in linecache.getline(place.file, place.line)


def check(report, kind):
    assert report.kind == kind, report
    if report.first is not None:
        assert is_marked(report.first.place, "first"), report
    assert is_marked(report.second.place, "second"), report
    if report.freed_at is not None:
        assert is_marked(report.freed_at, "freed"), report
