"""What the device's tests share: subprocesses with deadlines, and gates in streams."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping

import torch
from torch_openreg import _C

# Generous: the machine may be busy. Nothing is expected to take this long.
DEADLINE_S = 60.0


def gate(stream: torch.Stream | None = None) -> "_C._StreamGate":
    """Work on `stream` (default: the current one) that runs until the gate's open()."""
    return _C._StreamGate(stream or torch.openreg.current_stream(), DEADLINE_S)


def run_python(
    code: str, env: Mapping[str, str] | None = None, check: bool = True
) -> "subprocess.CompletedProcess[str]":
    """Runs `code` in a new interpreter, under a deadline; stdout and stderr are in the result."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(
            f"no end after {DEADLINE_S} s: {error.stdout!r} {error.stderr!r}"
        ) from error
    if check:
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def died_by(done: "subprocess.CompletedProcess[str]", number: signal.Signals) -> bool:
    """True if the process was ended by that signal."""
    return done.returncode == -number
