"""Packages from the Debian archive, by apt with a configuration of its own.

Nothing of the system's apt is changed, and no root is needed: state, cache and sources lie in a
folder of ours. Signatures are checked with Debian's own keyring. From the system come the mirror's
address and the settings below Acquire (proxies, certificates, time-outs).
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import NamedTuple

from tools.bootstrap import apt_sources, host, processes
from tools.bootstrap.report import DISK_FULL, BootstrapError, Progress

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGE = "bazel-bootstrap"
# Debian's suites move on: what is in testing today has the code name forky once it is released.
SUITES = ("testing", "forky", "unstable")
# Asked for besides Bazel: its Java, the sources of googletest, and patchelf to relocate the rest.
WANTED = (PACKAGE, "default-jre-headless", "googletest", "patchelf", "bazel-rules-shell")
# Dependencies that Bazel does not need here, or that the machine has: apt is told they are there.
LEFT_OUT = [
    "build-essential",
    "ca-certificates",
    "ca-certificates-java",
    "debconf",
    "default-jdk-headless",
    "java-common",
    "libjs-jquery",
    "libpam0g",
    "libsystemd0",
    "libudev1",
    "media-types",
    "netbase",
    "node-core-js",
    "node-html5shiv",
    "openssl",
    "perl",
    "perl-base",
    "python3",
    "readline-common",
    "tzdata",
    "unzip",
    "util-linux",
    "zlib1g-dev",
]

_UNREACHABLE = re.compile(
    r"^(?:[EW]: )?(.*(?:resolv|[Cc]onnect|timed out|unreachable).*)$", re.MULTILINE
)
_UPDATE_DEADLINE_S = 900
_DOWNLOAD_DEADLINE_S = 7200


class _AptFailure(Exception):
    """apt-get failed; the message is its error output."""


class Choice(NamedTuple):
    """A suite that has a fitting version of Bazel."""

    mirror: str
    suite: str
    version: str


def fits(version: str) -> bool:
    """Whether a Debian version is a Bazel that builds this repository: 7.4 or a later 7."""
    match = re.match(r"(?:\d+:)?7\.(\d+)\.", version)
    return match is not None and int(match.group(1)) >= 4


class Archive:
    """A private apt below `folder`, which keeps downloads from one run to the next."""

    def __init__(self, folder: str, progress: Progress):
        self._folder = folder
        self._progress = progress
        self._environment = processes.environment(APT_CONFIG=os.path.join(folder, "apt.conf"))

    def choose_suite(self) -> Choice:
        """Finds a mirror and suite with a fitting Bazel, and leaves apt set up for it."""
        mirrors = self._mirrors()
        self._write_configuration()
        seen: list[str] = []
        failures: list[str] = []
        for mirror in mirrors:
            for suite in SUITES:
                try:
                    self._update(mirror, suite)
                except _AptFailure as failure:
                    failures.append(str(failure))
                    if _UNREACHABLE.search(str(failure)):
                        break  # The other suites of this mirror would be tried in vain.
                    continue
                version = self._candidate()
                if version and fits(version):
                    return Choice(mirror, suite, version)
                seen.append(f"{suite} has {version or 'none'}")
        if seen:
            raise BootstrapError(
                f"no suite of Debian has {PACKAGE} 7.4 or a later 7 any more ({', '.join(seen)}): "
                "install bazelisk, or Bazel 7.7.1, and put it on PATH."
            )
        raise _explain("\n".join(failures), self._folder)

    def download(self) -> list[str]:
        """Downloads what is wanted with its dependencies; returns the paths of the packages."""
        command = ["apt-get", "install", "--download-only", "-y", "-q", *WANTED]
        try:
            self._apt(command, "downloading Bazel", _DOWNLOAD_DEADLINE_S)
        except _AptFailure as failure:
            raise _explain(str(failure), self._folder) from None
        code, out, err = processes.output(
            ["apt-get", "install", "--print-uris", "--no-download", "-y", "-q", *WANTED],
            _UPDATE_DEADLINE_S,
            env=self._environment,
        )
        cached = os.path.join(self._folder, "cache", "archives")
        left = re.findall(r"^'[^']*' (\S+) \d+ ", out, re.MULTILINE)
        if code != 0 or left:
            raise _explain(err or f"apt-get did not download {' '.join(left)}", self._folder)
        return sorted(
            os.path.join(cached, name) for name in os.listdir(cached) if name.endswith(".deb")
        )

    def _mirrors(self) -> list[str]:
        config = self._machine_configuration("Dir::Etc::sourcelist/f", "Dir::Etc::sourceparts/d")
        codename = host.os_release().get("VERSION_CODENAME")
        mirrors = apt_sources.debian_mirrors(apt_sources.read_sources(*config), codename)
        if not mirrors:
            raise BootstrapError(
                f"apt's sources ({config[0]} and {config[1]}) name no Debian mirror: add one there "
                "(see 'man sources.list') and run this again."
            )
        if not os.path.isfile(KEYRING):
            raise BootstrapError(
                f"Debian's keyring {KEYRING} is missing: as root run "
                "'apt-get install debian-archive-keyring' and run this again."
            )
        return mirrors

    def _machine_configuration(self, *names: str) -> tuple[str, ...]:
        arguments = [part for i, name in enumerate(names) for part in (f"V{i}", name)]
        code, out, err = processes.output(["apt-config", "shell", *arguments], 60)
        values = tuple(re.findall(r"^V\d+='(.*)'$", out, re.MULTILINE))
        if code != 0 or len(values) != len(names):
            raise BootstrapError(
                f"this machine's apt is not usable ({_last_line(err)}): repair it."
            )
        return values

    def _write_configuration(self) -> None:
        for name in ("state/lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(self._folder, name), exist_ok=True)
        with open(os.path.join(self._folder, "status"), "w", encoding="utf-8") as file:
            for package in LEFT_OUT:
                file.write(
                    f"Package: {package}\nStatus: install ok installed\nVersion: 99:99\n"
                    "Architecture: all\nMulti-Arch: foreign\nMaintainer: nobody <nobody@invalid>\n"
                    "Description: taken from the machine, or not needed\n\n"
                )
        _, acquire, _ = processes.output(["apt-config", "dump", "Acquire"], 60)
        own = {
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": "/dev/null",
            "Dir::Etc::sourcelist": f"{self._folder}/sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State": f"{self._folder}/state",
            "Dir::State::status": f"{self._folder}/status",
            "Dir::Cache": f"{self._folder}/cache",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Acquire::Retries": "2",
        }
        with open(os.path.join(self._folder, "apt.conf"), "w", encoding="utf-8") as file:
            file.write(acquire)
            file.write("#clear Acquire::Languages;\n")
            file.write('Acquire::Languages "none";\n')
            for name, value in own.items():
                file.write(f'{name} "{value}";\n')

    def _update(self, mirror: str, suite: str) -> None:
        step = f"reading the index of Debian {suite}"
        try:
            self._write_source(mirror, suite, "")
            self._apt(["apt-get", "update", "-q"], step, _UPDATE_DEADLINE_S)
        except _AptFailure as failure:
            if "is expired" not in str(failure):
                raise
            # A mirror that stands still, or a snapshot, serves an index whose time is up. It is
            # signed all the same, and whether its Bazel fits is looked at, so age does no harm.
            self._progress.say(f"the mirror's index of {suite} is out of date; taking it as it is")
            self._write_source(mirror, suite, "check-valid-until=no")
            self._apt(["apt-get", "update", "-q"], step, _UPDATE_DEADLINE_S)

    def _write_source(self, mirror: str, suite: str, options: str) -> None:
        with open(os.path.join(self._folder, "sources.list"), "w", encoding="utf-8") as file:
            file.write(f"deb [signed-by={KEYRING} {options}] {mirror} {suite} main\n")

    def _candidate(self) -> str | None:
        _, out, _ = processes.output(["apt-cache", "policy", PACKAGE], 60, env=self._environment)
        match = re.search(r"^  Candidate: (\S+)$", out, re.MULTILINE)
        return match.group(1) if match and match.group(1) != "(none)" else None

    def _apt(self, command: list[str], step: str, deadline_s: int) -> None:
        """Runs apt-get and shows its progress; raises _AptFailure with what it complained of."""
        read_fd, write_fd = os.pipe()
        with open(os.path.join(self._folder, "apt.log"), "w+", encoding="utf-8") as log:
            child = processes.start(
                [*command, "-o", f"APT::Status-Fd={write_fd}"],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                pass_fds=(write_fd,),
            )
            os.close(write_fd)
            with processes.killed_after(child, deadline_s) as expired:
                self._progress.update(step, 0)
                with open(read_fd, encoding="utf-8", errors="replace") as status:
                    for line in status:
                        match = re.match(r"dlstatus:\d+:([\d.]+):", line)
                        if match:
                            self._progress.update(step, float(match.group(1)))
                code = child.wait()
            log.seek(0)
            text = log.read()
        if expired.is_set():
            raise _AptFailure(f"E: Connection timed out: no end after {deadline_s} s")
        if code != 0:
            raise _AptFailure("\n".join(re.findall(r"^(?:E|W|Err):? ?.*", text, re.MULTILINE)))
        self._progress.update(step, 100)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it says nothing"


def _explain(apt_errors: str, folder: str) -> BootstrapError:
    """The sentence for a failure of apt."""
    if re.search(r"No space left|enough free space|Disk quota", apt_errors):
        return BootstrapError(DISK_FULL.format(folder=folder, need_mb=host.NEEDED_MB))
    if re.search(r"NO_PUBKEY|not signed|signature|BADSIG", apt_errors):
        return BootstrapError(
            "the Debian mirror's index is not signed by a key in Debian's keyring: as root run "
            "'apt-get install --reinstall debian-archive-keyring' and run this again."
        )
    unreachable = _UNREACHABLE.search(apt_errors)
    if unreachable:
        return BootstrapError(
            "the Debian mirror of this machine's apt sources cannot be reached "
            f"({unreachable.group(1).strip()}): connect to the network (apt's proxy settings are "
            "used), or put bazelisk or Bazel 7.7.1 on PATH, and run this again."
        )
    return BootstrapError(
        f"apt-get failed ({_last_line(apt_errors)}): see that 'apt-get update' works on this "
        "machine and run this again."
    )
