"""The steps of an install, in order, under one lock."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tools.bootstrap import archive, host, modules, prefix, processes, verify
from tools.bootstrap.report import BootstrapError, Progress, from_os_error

# The last file that an install writes: with it the install is whole.
COMPLETE = "complete"
_LOCK_DEADLINE_S = 3600


def install(folder: str, progress: Progress) -> None:
    """Puts a Bazel that works into `folder`, or raises BootstrapError."""
    host.check()
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with _locked(folder + ".lock", progress):
            if not os.path.exists(os.path.join(folder, COMPLETE)):
                _install(folder, progress)
    except OSError as error:
        raise from_os_error(error, os.path.dirname(folder), host.NEEDED_MB) from error


def _install(folder: str, progress: Progress) -> None:
    downloads = folder + ".downloads"
    if os.path.lexists(folder):
        progress.say("removing what an interrupted run left")
        shutil.rmtree(folder)
    os.makedirs(downloads, exist_ok=True)
    host.check_disk(downloads, _size_mb(downloads))
    progress.say(
        f"no Bazel of a fitting version on PATH: installing one into {folder} (once; about 200 MB "
        "to download)"
    )
    apt = archive.Archive(downloads, progress)
    choice = apt.choose_suite()
    progress.say(f"Bazel {choice.version} from Debian {choice.suite}")
    packages = apt.download()
    os.makedirs(folder)
    prefix.unpack(packages, folder, progress)
    prefix.relocate(folder)
    modules.write(folder)
    progress.say("trying it on a small build")
    verify.verify(folder)
    os.sync()
    with open(os.path.join(folder, COMPLETE), "w", encoding="utf-8") as file:
        file.write(f"{choice.version} from {choice.suite}\n")
    shutil.rmtree(downloads, ignore_errors=True)
    progress.say("Bazel is installed")


def _size_mb(folder: str) -> int:
    sizes = [
        os.lstat(os.path.join(parent, name)).st_blocks * 512
        for parent, _, names in os.walk(folder)
        for name in names
    ]
    return sum(sizes) // 2**20


@contextmanager
def _locked(path: str, progress: Progress) -> Iterator[None]:
    """Holds the lock file `path`; waits for another run that holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("another run is installing Bazel; waiting for it")
            _lock_with_deadline(fd, path)
        processes.keep_open_in_children(fd)
        yield
    finally:
        os.close(fd)


def _lock_with_deadline(fd: int, path: str) -> None:
    def expire(*_: object) -> NoReturn:
        raise BootstrapError(
            f"another run holds {path} for over {_LOCK_DEADLINE_S // 60} minutes: end it and run "
            "this again."
        )

    signal.signal(signal.SIGALRM, expire)
    signal.alarm(_LOCK_DEADLINE_S)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    finally:
        signal.alarm(0)
