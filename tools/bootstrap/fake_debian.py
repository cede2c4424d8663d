"""A Debian in a folder: programs of the same names that answer as the tests want them to.

PATH then holds nothing but these and links to the tools that the bootstrap may use, so no test
depends on what the machine has or reaches its network. Each fake notes its call in `calls`; a call
whose name is in `hold` announces itself in the FIFO `reached` and waits for the FIFO `resume`.
"""

import os
import pathlib
import select
import shutil
import sys
import tarfile

REAL_TOOLS = [
    "bash",
    "cat",
    "chmod",
    "cp",
    "find",
    "grep",
    "mkdir",
    "realpath",
    "setpriv",
    "sh",
    "tar",
    "timeout",
    "touch",
]
DEADLINE_S = 60

_COMMON = """\
#!/bin/bash
fake={root}
note() {{
  echo "$1" >>"$fake/calls"
  if [[ -e $fake/hold && $(<"$fake/hold") == "$1" ]]; then
    echo $$ >"$fake/reached"
    read -r _ <"$fake/resume"
  fi
}}
"""
_APT_GET = """\
note "apt-get $1"
mode=$(<"$fake/mode")
folder=${APT_CONFIG%/*}
[[ $mode == offline ]] && {
  echo "E: Failed to fetch x  Temporary failure resolving 'mirror.invalid'"
  exit 100
}
[[ $mode == expired && $1 == update ]] && ! grep -q check-valid-until=no "$folder/sources.list" && {
  echo "E: Release file for x is expired (invalid since 23d). Updates will not be applied."
  exit 100
}
[[ $mode == full && $1 == install ]] && {
  echo "E: You don't have enough free space in x."
  exit 100
}
[[ $mode == unsigned ]] && {
  echo "W: GPG error: x InRelease: The following signatures couldn't be verified: NO_PUBKEY 1"
  exit 100
}
if [[ "$*" == *--download-only* ]]; then
  cp "$fake/bazel.deb" "$folder/cache/archives/"
fi
"""
_APT_CACHE = """\
folder=${APT_CONFIG%/*}
read -r _ _ suite _ <<<"$(grep -o '\\] .*' "$folder/sources.list")"
if [[ -e $fake/version.$suite ]]; then
  printf 'bazel-bootstrap:\\n  Candidate: %s\\n' "$(<"$fake/version.$suite")"
fi
"""
_APT_CONFIG = """\
case $1 in
  dump) echo 'Acquire::http::Proxy "http://proxy.invalid:1";' ;;
  shell) printf "V0='%s'\\nV1='%s'\\n" "$fake/sources.list" "$fake/sources.list.d" ;;
esac
"""
_DPKG_DEB = """\
note dpkg-deb
cat "$2"
"""
# What is unpacked: Bazel, which answers a build; a loader, which only ever starts patchelf.
_BAZEL = """\
note "bazel $*"
[[ -e $fake/broken ]] && { echo "ERROR: no such toolchain" >&2; exit 1; }
if [[ $* == *--batch* ]]; then
  mkdir bazel-bin && touch bazel-bin/answer
else
  printf '%s\\n' "$@"
fi
"""


class FakeDebian:
    """The folder `root` with `bin` (the whole PATH), `home` and a copy of the tools."""

    def __init__(self, root: pathlib.Path, tools: pathlib.Path):
        self.root = root
        self.bin = root / "bin"
        self.home = root / "home"
        self.bazel = root / "repo" / "tools" / "bazel"
        for folder in (self.bin, self.home, root / "repo" / "tools", root / "sources.list.d"):
            folder.mkdir(parents=True)
        shutil.copy(tools / "bazel", self.bazel)
        shutil.copytree(tools / "bootstrap", self.bazel.parent / "bootstrap")
        for tool in REAL_TOOLS:
            path = shutil.which(tool)
            assert path, f"this test needs {tool}"
            (self.bin / tool).symlink_to(path)
        self.program("python3", f'exec {sys.executable} "$@"\n')
        self.program("apt-get", _APT_GET)
        self.program("apt-cache", _APT_CACHE)
        self.program("apt-config", _APT_CONFIG)
        self.program("dpkg-deb", _DPKG_DEB)
        self.program("gcc", "")
        self.program("g++", "")
        self.mode("good")
        (root / "version.testing").write_text("7.7.1+ds-8\n")
        (root / "sources.list").write_text("deb http://mirror.invalid/debian bookworm main\n")
        for name in ("reached", "resume"):
            os.mkfifo(root / name)
        self._pack()

    def program(self, name: str, text: str) -> pathlib.Path:
        """Writes an executable script into `bin`."""
        path = self.bin / name
        path.write_text(_COMMON.format(root=self.root) + text)
        path.chmod(0o755)
        return path

    def mode(self, mode: str) -> None:
        """How apt-get behaves from now on: good, offline, expired, full or unsigned."""
        (self.root / "mode").write_text(mode)

    def calls(self) -> list[str]:
        """The calls of the fakes so far."""
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def hold(self, call: str) -> None:
        """The next calls of that name wait."""
        (self.root / "hold").write_text(call)

    def wait_until_held(self) -> int:
        """Waits until a call is held; its process id."""
        fd = os.open(self.root / "reached", os.O_RDONLY | os.O_NONBLOCK)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            assert poll.poll(DEADLINE_S * 1000), "no call came to the point where it is held"
            return int(os.read(fd, 100))
        finally:
            os.close(fd)

    def resume(self) -> None:
        """Lets the held call go on, and later ones pass."""
        (self.root / "hold").unlink()
        (self.root / "resume").write_text("\n")

    def environment(self, **more: str) -> dict[str, str]:
        """All that the processes under test get."""
        return {"HOME": str(self.home), "PATH": str(self.bin), **more}

    def _pack(self) -> None:
        tree = self.root / "tree"
        usr = tree / "usr"
        scripts = {
            "bin/bazel": _COMMON.format(root=self.root) + _BAZEL,
            "bin/patchelf": "#!/bin/bash\n",
            "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2": "#!/bin/bash\n",
            "share/bazel/bazel_classpath_debian_depends.txt": "/usr/share/java/a.jar\n",
            "share/doc/readme": "left out",
            "src/googletest/googletest/src/gtest.cc": "",
            "src/googletest/googlemock/src/gmock.cc": "",
        }
        for name, text in scripts.items():
            path = usr / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (usr / "lib" / "settings").symlink_to("/usr/share/bazel")
        with tarfile.open(self.root / "bazel.deb", "w") as archive:
            archive.add(tree, ".")
