"""What of torch's Python the sanitizer has to see: host reads without operator, and backward."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.graph
import torch.distributed as dist

from torch_openreg import _C

# What Python's syntax calls without a call instruction. A fault of the host's own operators is
# raised when the interpreter next looks for pending exceptions, which it does after calls: so these
# become calls, and the exception comes at their line. Not __getitem__: if it were Python's, tensors
# without dimensions would pass for sequences (PySequence_Check).
_BINARY = [
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"),
    "and",
    "or",
    "xor",
]
_OTHERS = [*("eq", "ne", "lt", "le", "gt", "ge"), *("neg", "abs", "invert", "bool", "float", "int")]
_SYNTAX = [
    *(f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i")),
    *(f"__{name}__" for name in (*_OTHERS, "setitem")),
]

# (owner, name, what was there before: None if it was inherited)
_replaced: list[tuple[Any, str, Any]] = []


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    own = vars(owner).get(name)
    setattr(owner, name, make(getattr(owner, name)))
    _replaced.append((owner, name, own))


def _host_read(original: Any) -> Any:
    def read(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _C._sanitizer_host_reads(self, original.__name__)
        return original(self, *args, **kwargs)

    read.__name__ = original.__name__
    read.__doc__ = original.__doc__
    return read


def _called(original: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any) -> Any:
        return original(*args)

    return call


def _completed(original: Any) -> Any:
    def is_completed(self: Any) -> bool:
        completed: bool = original(self)
        if completed:
            _C._sanitizer_host_saw_work(self)
        return completed

    return is_completed


def _backward(original: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        _C._sanitizer_note_backward()
        return original(*args, **kwargs)

    return run


def install() -> None:
    """Put the hooks in; a second call does nothing."""
    if _replaced:
        return
    for name in ("numpy", "tolist", "__reduce_ex__"):  # the last: pickle and torch.save
        _replace(torch.Tensor, name, _host_read)
    for name in _SYNTAX:
        if hasattr(torch.Tensor, name):
            _replace(torch.Tensor, name, _called)
    if dist.is_available():
        _replace(dist.Work, "is_completed", _completed)
    for module in (torch.autograd, torch.autograd.graph):
        _replace(module, "_engine_run_backward", _backward)


def remove() -> None:
    """Put back what was there."""
    while _replaced:
        owner, name, own = _replaced.pop()
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
