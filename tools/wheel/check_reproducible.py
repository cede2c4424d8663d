#!/usr/bin/env python3
"""Builds the wheel a second time elsewhere and compares: the bytes must be the same.

usage: tools/wheel/check_reproducible.py

The second build is of a copy of the sources in another folder, with another output base and without
the disk cache. A wheel whose bytes were built again before (on this machine) is not built again.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "torch_openreg"


def build(workspace, startup, options):
    """Builds //python:wheel and returns the wheel's path."""
    bazel = [workspace / "tools/bazel", *startup]
    subprocess.run([*bazel, "build", *options, "//python:wheel"], cwd=workspace, check=True)
    query = [*bazel, "cquery", *options, "--output=files", "//python:wheel"]
    printed = subprocess.run(query, cwd=workspace, check=True, stdout=subprocess.PIPE, text=True)
    execution_root = subprocess.run(
        [*bazel, "info", *options, "execution_root"],
        cwd=workspace,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return pathlib.Path(execution_root.stdout.strip(), printed.stdout.strip().splitlines()[-1])


def digest(path):
    """Returns the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_elsewhere(folder):
    """Returns the digest of the wheel that a copy of the sources gives."""
    copy = folder / "sources"
    # What git ignores is no source: Bazel's links, caches.
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    startup = [f"--output_base={folder / 'output_base'}"]
    try:
        return digest(build(copy, startup, ["--disk_cache="]))
    finally:
        subprocess.run(
            [copy / "tools/bazel", *startup, "clean", "--expunge"], cwd=copy, check=False
        )


def main():
    """Returns 1 when the two wheels differ."""
    first = digest(build(ROOT, [], []))
    known = CACHE / "reproduced_wheels"
    if (known / first).exists():
        print(f"The wheel {first} was built twice before, with the same bytes.")
        return 0
    # Not in /tmp: the sandbox hides what is there.
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="second_build-", dir=CACHE) as folder:
        second = build_elsewhere(pathlib.Path(folder))
    print(f"first  {first}\nsecond {second}")
    if first != second:
        print("The wheel is not reproducible: compare the two with diffoscope, or unzip and cmp.")
        return 1
    known.mkdir(exist_ok=True)
    (known / first).touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
