"""Child processes that cannot outlive or outwit the bootstrap."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_kept_fds: list[int] = []


def keep_open_in_children(fd: int) -> None:
    """Children started from now on inherit `fd`: a lock on it lasts until the last of them ends."""
    _kept_fds.append(fd)


def environment(**more: str) -> dict[str, str]:
    """This process's environment with English messages."""
    return {**os.environ, "LC_ALL": "C", "LANGUAGE": "", **more}


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Starts `command` so that it is killed when this process is, however that happens."""
    kept = _kept_fds if options.pop("keep_lock", True) else []
    pass_fds = tuple(kept) + tuple(options.pop("pass_fds", ()))
    options.setdefault("env", environment())
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *command],
        stdin=options.pop("stdin", subprocess.DEVNULL),
        text=True,
        errors="replace",
        pass_fds=pass_fds,
        **options,
    )


def output(command: Sequence[str], deadline_s: float, **options: Any) -> tuple[int, str, str]:
    """Runs `command`: its exit code, output and error output. Kills it at the deadline."""
    child = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    try:
        out, err = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        return 124, out, err + f"\n{command[0]} took longer than {deadline_s:.0f} s"
    except BaseException:
        child.kill()
        child.wait()
        raise
    return child.returncode, out, err


@contextmanager
def killed_after(child: subprocess.Popen[str], deadline_s: float) -> Iterator[threading.Event]:
    """Kills `child` at the deadline, which sets the event, and when the block is left early."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        child.kill()

    timer = threading.Timer(deadline_s, expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
        if child.poll() is None:
            child.kill()
            child.wait()
