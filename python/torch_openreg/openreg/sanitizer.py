"""Finds races and lifetime faults of device programs, independent of timing.

Every kernel, copy and collective is checked, when it is issued, against what other streams do with
the same bytes: work that no event, wait or synchronise orders is reported with both places in the
program, also if this run happened to be right. docs/sanitizer.md has examples.

``OPENREG_SANITIZER=1`` switches it on for a process, ``OPENREG_SANITIZER=log`` without raising;
:func:`enable` does the same.
"""

import logging
import os
import site
import sysconfig
from dataclasses import dataclass
from typing import Any

import torch
import typing_extensions

from torch_openreg import _C
from torch_openreg.openreg import _sanitizer_hooks

__all__ = [
    "Operation",
    "Place",
    "Report",
    "SanitizerError",
    "clear",
    "disable",
    "enable",
    "is_enabled",
    "reports",
]

_LOGGER = logging.getLogger("torch_openreg.sanitizer")
_MODES = ("raise", "log")
# Reports that are kept at most.
_MAX_REPORTS = 1000

# torch's names in C++ that are not simply Python's with a capital.
_DTYPES = {
    "Byte": "uint8",
    "Char": "int8",
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
}

_mode = "raise"
_reports: list["Report"] = []


@dataclass(frozen=True)
class Place:
    """A line of the program.

    For work of a backward pass, `file` and `line` are those of the call of backward(), `node` is
    the autograd node, and `forward` (file, line) where its operator was called.
    """

    file: str
    line: int
    function: str
    node: str = ""
    forward: tuple[str, int] | None = None

    def __str__(self) -> str:
        text = f"{self.file}:{self.line} in {self.function}"
        if self.node:
            text += f" ({self.node}"
            if self.forward is not None:
                text += f" of {self.forward[0]}:{self.forward[1]}"
            text += ")"
        return text


@dataclass(frozen=True)
class Operation:
    """One side of a report: an operator or a collective, and the tensor with which it is concerned.

    `group` and `sequence` are set for collectives. `low` and `high` are addresses, `high` one past
    the last byte; both are 0 where there is no tensor.
    """

    operator: str
    stream: str
    group: str
    sequence: int
    place: Place | None
    writes: bool
    shape: tuple[int, ...]
    dtype: str
    low: int
    high: int

    @property
    def name(self) -> str:
        """The operator, or "all_reduce #3 on rank 0 of 2 in group '0'"."""
        return f"{self.operator} #{self.sequence} on {self.group}" if self.group else self.operator

    def _lines(self, verb: str) -> str:
        text = f"  {self.name}"
        if self.high > self.low:
            shape = ", ".join(map(str, self.shape))
            text += f" {verb} {self.dtype}[{shape}] at [{self.low:#x}, {self.high:#x})"
        place = "an unknown place" if self.place is None else self.place
        return f"{text}, {self.stream}\n    at {place}"

    def __str__(self) -> str:
        return self._lines("writes" if self.writes else "reads")


@dataclass(frozen=True)
class Report:
    """One fault.

    kind: "race", "reuse", "use-after-free", "out-of-bounds", "never-awaited" or "left-in-flight".
    first: what came first in the program, None for use after free and out of bounds.
    second: what met it, None for collectives that were left alone.
    freed_at: where memory was given back (reuse, use after free), if known.
    """

    kind: str
    first: Operation | None
    second: Operation | None
    freed_at: Place | None
    message: str

    def __str__(self) -> str:
        return self.message


class SanitizerError(RuntimeError):
    """What the sanitizer raises; `report` says more than the text."""

    report: Report

    def __init__(self, report: Report) -> None:
        super().__init__(report.message)
        self.report = report

    def _as_class(self) -> type["SanitizerError"]:
        """A class that makes this exception without arguments."""
        report = self.report

        class Delayed(SanitizerError):
            def __init__(self) -> None:
                super().__init__(report)

        Delayed.__name__ = Delayed.__qualname__ = SanitizerError.__name__
        Delayed.__module__ = SanitizerError.__module__
        return Delayed


def _place(found: dict[str, Any] | None) -> Place | None:
    if found is None:
        return None
    forward = (found["forward_file"], found["forward_line"]) if found["forward_file"] else None
    return Place(found["file"], found["line"], found["function"], found["node"], forward)


def _operation(found: dict[str, Any] | None) -> Operation | None:
    if found is None:
        return None
    if found["on_host"]:
        stream = "on the host"
    elif found["stream_id"] == 0:
        stream = f"on the default stream of openreg:{found['device']}"
    elif found["stream_id"] < 0:
        stream = f"on a stream of its own on openreg:{found['device']}"
    else:
        stream = f"on stream {found['stream_id']} of openreg:{found['device']}"
    return Operation(
        found["operator"],
        stream,
        found["group"],
        found["sequence"],
        _place(found["place"]),
        found["writes"],
        found["shape"],
        _DTYPES.get(found["dtype"], found["dtype"].lower()),
        found["low"],
        found["high"],
    )


def _advice(first: Operation, second: Operation) -> str:
    if first.group:
        return "call wait() on the work of the first before the second"
    if second.stream == "on the host":
        return "synchronise with the first (an event, its stream, or the device) before the second"
    return (
        "let the second's stream wait for the first (wait_stream, or an event recorded after the "
        "first) before the second is issued"
    )


def _race_message(first: Operation, second: Operation) -> str:
    kinds = {
        (True, True): "write/write",
        (True, False): "write/read",
        (False, True): "read/write",
    }
    low, high = max(first.low, second.low), min(first.high, second.high)
    return (
        f"race ({kinds[(first.writes, second.writes)]}): nothing orders these two, which share "
        f"bytes of [{low:#x}, {high:#x})\n{first}\n{second}\n  To correct it, "
        f"{_advice(first, second)}."
    )


def _message(found: dict[str, Any], first: Operation | None, second: Operation | None) -> str:
    kind = found["kind"]
    freed_at = _place(found["freed_at"])
    block = (
        f"the block [{found['freed_low']:#x}, {found['freed_low'] + found['freed_bytes']:#x})\n"
        f"    freed at {freed_at or 'an unknown place'}"
    )
    if first is not None and second is not None:
        if kind == "race":
            return _race_message(first, second)
        return (
            "reuse: memory was given back while a stream may still use it, and may be handed out "
            f"again\n{first}\n  {block}\n{second._lines('has memory that may be the same:')}\n"
            "  To correct it, call record_stream() with the first's stream before the tensor is "
            "freed, or let the stream on which it was allocated wait for the first."
        )
    if second is not None:
        if kind == "use-after-free":
            return f"use after free: the memory of this tensor was given back\n{second}\n  {block}"
        storage = found["second"]
        low, size = storage["storage_low"], storage["storage_bytes"]
        return (
            f"out of bounds: the tensor reaches beyond its storage of {size} bytes at "
            f"[{low:#x}, {low + size:#x})\n{second}"
        )
    if kind == "never-awaited":
        return f"never awaited: nobody has called wait() on this work\n{first}"
    return f"left in flight: this work had not ended when its group was given up\n{first}"


def _handle(findings: list[dict[str, Any]]) -> SanitizerError | None:
    """What the extension calls with new findings; returns what it has to raise."""
    raised: SanitizerError | None = None
    for found in findings:
        first, second = _operation(found["first"]), _operation(found["second"])
        report = Report(
            found["kind"],
            first,
            second,
            _place(found["freed_at"]),
            _message(found, first, second),
        )
        if found["is_new"] and len(_reports) < _MAX_REPORTS:
            _reports.append(report)
        raises = _mode == "raise" and second is not None
        if raised is None and (raises or found["is_fatal"]):
            raised = SanitizerError(report)
        if found["is_new"] and not (raises and raised is not None and raised.report is report):
            _LOGGER.warning("%s", report.message)
    return raised


def _skipped_paths() -> list[tuple[str, bool]]:
    """Prefixes of files, and whether their frames are passed over when a place is looked for."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = sysconfig.get_paths()
    installed = {paths["purelib"], paths["platlib"], *site.getsitepackages()}
    return [
        (os.path.join(paths["stdlib"], ""), True),
        *((os.path.join(path, ""), False) for path in sorted(installed)),
        (os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), ""), True),
        (os.path.join(package, ""), True),
        (typing_extensions.__file__, True),  # torch's decorators are partly its
    ]


def enable(mode: str = "raise") -> None:
    """Switch the sanitizer on. What was issued before is not known to it.

    Args:
        mode: "raise" raises :class:`SanitizerError` at the second of two operations, before it
            runs (after it, for the host's own operators on pinned memory); "log" writes a warning
            to the logger ``torch_openreg.sanitizer``. Each pair of places is reported once. A
            tensor whose storage has no memory is refused in both modes, each time: its kernel
            would crash.

    Raises:
        ValueError: another mode.
    """
    global _mode
    if mode not in _MODES:
        raise ValueError(f"expected a mode of {_MODES}, got {mode!r}")
    _mode = mode
    _sanitizer_hooks.install()
    _C._sanitizer_enable(_handle, _skipped_paths())


def disable() -> None:
    """Switch the sanitizer off. The reports stay."""
    _C._sanitizer_disable()
    _sanitizer_hooks.remove()


def is_enabled() -> bool:
    """True between :func:`enable` and :func:`disable`."""
    return _C._sanitizer_enabled()


def reports() -> list[Report]:
    """All reports so far, oldest first, the first thousand at most."""
    return list(_reports)


def clear() -> None:
    """Forget the reports, so that each pair of places may be reported again."""
    _reports.clear()
    _C._sanitizer_forget_reported()


def _enable_from_environment() -> None:
    """Called by ``import torch_openreg``."""
    value = os.environ.get("OPENREG_SANITIZER", "")
    if value in ("", "0"):
        return
    if value not in ("1", *_MODES):
        raise ValueError(f"OPENREG_SANITIZER: expected 0, 1, raise or log, got {value!r}")
    enable("log" if value == "log" else "raise")
