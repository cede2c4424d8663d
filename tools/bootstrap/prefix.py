"""Debian packages unpacked into a folder, and made to run from there.

The programs want a newer C library than Debian 12 has. So they run with the loader and the
libraries of the prefix: patchelf writes those into each program once.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor

from tools.bootstrap import processes
from tools.bootstrap.report import BootstrapError, Progress

LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
JAVA = "usr/lib/jvm/default-java"
BAZEL_SHARE = "usr/share/bazel"
_CLASS_PATH = f"{BAZEL_SHARE}/bazel_classpath_debian_depends.txt"
# Programs that Bazel starts, as patterns below the prefix.
_PROGRAMS = (
    "usr/bin/bazel",
    "usr/libexec/x86_64-linux-gnu/bazel/*",
    f"{JAVA}/bin/java",
    f"{JAVA}/lib/jspawnhelper",
)
# Wanted by no program of ours, and a third of the files.
_NOT_UNPACKED = ("doc", "man", "locale", "lintian", "maven-repo", "bash-completion", "zsh")
# A jar that Debian's list forgets; without it the server cannot answer its client.
_FORGOTTEN_JARS = ("perfmark-api.jar",)
_UNPACK_DEADLINE_S = 600


def unpack(packages: list[str], prefix: str, progress: Progress) -> None:
    """Unpacks the `packages` (paths of .deb files) into the empty folder `prefix`."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [pool.submit(_unpack_one, package, prefix) for package in packages]
        try:
            for done, job in enumerate(jobs, 1):
                job.result()
                progress.update("unpacking", 100 * done / len(jobs))
        except BaseException:
            for job in jobs:
                job.cancel()
            raise


def _unpack_one(package: str, prefix: str) -> None:
    reader = processes.start(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    excludes = [f"--exclude=./usr/share/{name}" for name in _NOT_UNPACKED]
    writer = processes.start(
        ["tar", "-x", "--no-same-owner", "-C", prefix, *excludes],
        stdin=reader.stdout,
        stderr=subprocess.PIPE,
    )
    assert reader.stdout is not None
    reader.stdout.close()
    with processes.killed_after(reader, _UNPACK_DEADLINE_S):
        with processes.killed_after(writer, _UNPACK_DEADLINE_S):
            _, errors = writer.communicate()
            reader.wait()
    if writer.returncode != 0 or reader.returncode != 0:
        if re.search(r"No space left|quota", errors):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.remove(package)  # So that the next run downloads it anew.
        reason = (errors.strip().splitlines() or ["the package is damaged"])[0]
        raise BootstrapError(
            f"{os.path.basename(package)} could not be unpacked ({reason}): run this again."
        )


def relocate(prefix: str) -> None:
    """Makes what was unpacked work at `prefix` instead of at /."""
    _relocate_links(prefix)
    _relocate_class_path(prefix)
    _relocate_programs(prefix)


def _relocate_links(prefix: str) -> None:
    for folder, folders, files in os.walk(prefix):
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path) and os.path.isabs(os.readlink(path)):
                target = prefix + os.readlink(path)
                os.remove(path)
                os.symlink(os.path.relpath(target, folder), path)


def _relocate_class_path(prefix: str) -> None:
    """Rewrites Debian's list of jars, adding what the jars themselves ask for."""
    with open(os.path.join(prefix, _CLASS_PATH), encoding="utf-8") as file:
        names = [line.strip() for line in file if line.strip()]
    names += [f"/usr/share/java/{name}" for name in _FORGOTTEN_JARS]
    jars: list[str] = []
    while names:
        jar = prefix + names.pop(0)
        if jar not in jars and os.path.isfile(jar):
            jars.append(jar)
            names += _class_path_of(jar)
    with open(os.path.join(prefix, _CLASS_PATH), "w", encoding="utf-8") as file:
        file.writelines(f"{jar}\n" for jar in jars)


def _class_path_of(jar: str) -> list[str]:
    """The absolute paths in the Class-Path of a jar; they do not resolve in a prefix."""
    with zipfile.ZipFile(jar) as archive:
        if "META-INF/MANIFEST.MF" not in archive.namelist():
            return []
        manifest = archive.read("META-INF/MANIFEST.MF").decode("utf-8", "replace")
    manifest = manifest.replace("\r\n", "\n").replace("\n ", "")
    match = re.search(r"^Class-Path:(.*)$", manifest, re.MULTILINE)
    return [path for path in match.group(1).split() if path.startswith("/")] if match else []


def _relocate_programs(prefix: str) -> None:
    loader = os.path.join(prefix, LOADER)
    libraries = os.path.join(prefix, LIBRARIES)
    programs = sorted(
        {
            os.path.realpath(path)
            for pattern in _PROGRAMS
            for path in glob.glob(f"{prefix}/{pattern}")
        }
    )
    run_path = f"{libraries}:$ORIGIN/../lib"  # The second is for Java's own libraries.
    patchelf = [loader, "--library-path", libraries, os.path.join(prefix, "usr/bin/patchelf")]
    for program in programs:
        code, _, errors = processes.output(
            [
                *patchelf,
                "--set-interpreter",
                loader,
                "--force-rpath",
                "--set-rpath",
                run_path,
                program,
            ],
            deadline_s=60,
        )
        if code != 0:
            reason = (errors.strip().splitlines() or [f"exit code {code}"])[0]
            raise BootstrapError(f"patchelf failed on {program} ({reason}): run this again.")
