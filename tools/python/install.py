"""Installs a lock file into a folder and byte-compiles it. Run by the rule of @pypi.

usage: install.py LOCK TARGET
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import find_pip
import lockfile
import store


def pip_install(pip, requirements, target):
    """Installs exactly the files that the requirement lines name."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        command = [*pip, "install", "--target", target, "--require-hashes", "--no-deps"]
        command += ["--only-binary", ":all:", "--no-compile", "--no-input", "-r", file.name]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if "ERROR" in line]
        sys.exit("\n".join(errors or result.stderr.splitlines()[-20:]))


def torch_is_cpu_only(target):
    """Says whether the installed torch is a build without CUDA."""
    with open(os.path.join(target, "torch", "version.py"), encoding="utf-8") as file:
        version = {}
        exec(file.read(), version)  # torch's own generated file of constants
    return version["cuda"] is None


def byte_compile(target):
    """Writes .pyc files that are never checked against their sources, which do not change here."""
    # From inside the folder, so that no path of this machine gets into the files. The return code
    # says only that some file (syntax of a newer Python) did not compile; it is compiled at import.
    command = [sys.executable, "-m", "compileall", "-qq", "-j", "0"]
    command += ["--invalidation-mode", "unchecked-hash", "."]
    subprocess.run(command, cwd=target, stdout=subprocess.DEVNULL, check=False)


def main(lock, target):
    """Makes the folder `target` from the lock file, or from the store."""
    with open(lock, encoding="utf-8") as file:
        text = file.read()
    entry = store.Entry(text)
    if entry.take(target):
        return
    always, cuda = lockfile.split(text)
    pip = find_pip.pip_command()
    pip_install(pip, always, target)
    if not torch_is_cpu_only(target):
        pip_install(pip, cuda, target)
    byte_compile(target)
    entry.put(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
