"""What the bootstrap needs of the machine, checked before anything is downloaded."""

from __future__ import annotations

import os
import platform
import shutil

from tools.bootstrap.report import DISK_FULL, BootstrapError

# What an install takes at its peak: indices, packages and the unpacked tree.
NEEDED_MB = 900

_OTHERWISE = "install bazelisk, or Bazel 7.7.1, and put it on PATH."


def os_release(path: str = "/etc/os-release") -> dict[str, str]:
    """The fields of os-release(5); empty where there is no such file."""
    fields: dict[str, str] = {}
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, equals, value = line.strip().partition("=")
                if equals:
                    fields[name] = value.strip("\"'")
    return fields


def check_platform(release: dict[str, str], system: str, machine: str) -> None:
    """Raises unless this is Debian 12 or newer on x86_64."""
    name = release.get("PRETTY_NAME") or release.get("ID") or system
    version = release.get("VERSION_ID", "")
    if system != "Linux" or release.get("ID") != "debian":
        raise BootstrapError(
            f"a Bazel can be installed by this script on Debian only, and this is {name}: "
            + _OTHERWISE
        )
    if machine != "x86_64":
        raise BootstrapError(
            f"a Bazel can be installed by this script on x86_64 only, and this is {machine}: "
            + _OTHERWISE
        )
    if version.isdigit() and int(version) < 12:
        raise BootstrapError(
            f"a Bazel can be installed by this script on Debian 12 or newer, and this is {name}: "
            + _OTHERWISE
        )


def check_tools() -> None:
    """Raises unless the programs that unpack packages and compile are there."""
    for tool in ("apt-get", "apt-cache", "apt-config", "dpkg-deb", "setpriv", "tar"):
        if not shutil.which(tool):
            raise BootstrapError(
                f"there is no {tool} on PATH, which Debian always has: repair this machine's "
                "Debian, or " + _OTHERWISE
            )
    compiler = os.environ.get("CC") or "gcc"
    if not shutil.which(compiler) or not (os.environ.get("CC") or shutil.which("g++")):
        raise BootstrapError(
            "there is no C++ compiler on PATH: as root run 'apt-get install g++', or set CC to a "
            "compiler, and run this again."
        )


def check_disk(folder: str, have_mb: int) -> None:
    """Raises unless `folder` has room, counting what earlier runs left, and programs run there."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise BootstrapError(
            f"programs cannot run below {folder} (it is mounted noexec): set XDG_CACHE_HOME to a "
            "folder on another disk and run this again."
        )
    free_mb = shutil.disk_usage(folder).free // 2**20
    if free_mb + have_mb < NEEDED_MB:
        raise BootstrapError(DISK_FULL.format(folder=folder, need_mb=NEEDED_MB))


def check() -> None:
    """All checks that need no folder."""
    check_platform(os_release(), platform.system(), platform.machine())
    check_tools()
