"""What the bootstrap tells its user: progress on the way, one sentence when it fails."""

from __future__ import annotations

import errno
import sys
import time
from typing import TextIO


class BootstrapError(Exception):
    """A failure; its message is one sentence that says what its user can do."""


DISK_FULL = (
    "the disk that holds {folder} is full: free at least {need_mb} MB there, or set XDG_CACHE_HOME "
    "to a folder on a larger disk, and run this again."
)


def from_os_error(error: OSError, folder: str, need_mb: int) -> BootstrapError:
    """The sentence for an operating system error met while writing below `folder`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BootstrapError(DISK_FULL.format(folder=folder, need_mb=need_mb))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
        return BootstrapError(
            f"cannot write below {folder} ({error.strerror}): make it writable, or set "
            "XDG_CACHE_HOME to a folder that is, and run this again."
        )
    return BootstrapError(f"{error}: remove {folder} and run this again.")


class Progress:
    """One line on a terminal that is rewritten, or a line per tenth of a step elsewhere."""

    def __init__(self, stream: TextIO | None = None):
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._open_line = False
        self._step = ""
        self._tenth = -1
        self._start_s = time.monotonic()

    def say(self, text: str) -> None:
        """Prints a whole line."""
        self._end_line()
        self._stream.write(f"tools/bazel: {text}\n")
        self._stream.flush()

    def update(self, step: str, percent: float) -> None:
        """Shows how far `step` is."""
        percent = min(100.0, max(0.0, percent))
        if step != self._step:
            self._end_line()
            self._step, self._tenth = step, -1
        if self._terminal:
            bar = "#" * int(percent / 4)
            elapsed_s = time.monotonic() - self._start_s
            self._stream.write(f"\r\033[K{step} [{bar:<25}] {percent:3.0f} %  {elapsed_s:.0f} s")
            self._open_line = True
        elif int(percent / 10) > self._tenth:
            self._tenth = int(percent / 10)
            self._stream.write(f"tools/bazel: {step} {percent:.0f} %\n")
        self._stream.flush()

    def _end_line(self) -> None:
        if self._open_line:
            self._stream.write("\n")
            self._open_line = False
