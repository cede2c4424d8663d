"""The checks of tools/lint. Each takes (root, files, fix) and returns a list of problems."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tools.lint import forbidden, limits


class Unavailable(Exception):
    """This machine lacks what a check runs."""


def _run(root, command):
    """Returns the lines that a tool printed, or nothing when it is content."""
    result = subprocess.run(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode == 0:
        return []
    return result.stdout.splitlines() or [f"{command[0]} failed with {result.returncode}"]


def _having(files, *endings):
    return [file for file in files if file.endswith(endings)]


def _packaged(module, relative):
    """Returns the path of a program that a Python package carries."""
    package = __import__(module)
    return os.path.join(os.path.dirname(package.__file__), relative)


def clang_format(root, files, fix):
    """C and C++ in the style of .clang-format."""
    sources = _having(files, ".c", ".cc", ".h")
    program = _packaged("clang_format", "data/bin/clang-format")
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]
    return _run(root, [program, *mode, *sources]) if sources else []


def buildifier(root, files, fix):
    """Bazel files in the style of buildifier."""
    program = os.environ["BUILDIFIER"]
    if pathlib.Path(program).suffix == ".txt":
        raise Unavailable(pathlib.Path(program).read_text().strip())
    sources = _having(files, ".bazel", ".bzl")
    mode = ["-mode=fix"] if fix else ["-mode=diff", "-diff_command=diff -u"]
    return _run(root, [os.path.abspath(program), *mode, *sources])


def ruff(root, files, fix):
    """Python: style, imports, likely mistakes."""
    program = _packaged("ruff", "../bin/ruff")
    sources = [*_having(files, ".py", ".pyi"), "tools/python/lock"]
    check = [program, "check", "--quiet", "--no-cache"]
    layout = [program, "format", "--quiet", "--no-cache"]
    if fix:
        _run(root, [*check, "--fix", *sources])
        _run(root, [*layout, *sources])
    return _run(root, [*check, *sources]) + _run(root, [*layout, "--diff", *sources])


def mypy(root, files, fix):
    """The public Python under mypy --strict."""
    del fix  # types are not written by a tool
    if not any(file.startswith("python/torch_openreg/") for file in files):
        return []
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", cache]
        return _run(root, [*command, "--config-file", "pyproject.toml", "python/torch_openreg"])


def _read(root, file):
    return (pathlib.Path(root) / file).read_text(encoding="utf-8")


def _texts(files):
    """Without what is no text, such as the inputs of fuzz targets."""
    return [file for file in files if not re.search(r"\.png$|(^|/)testdata/", file)]


def size_limits(root, files, fix):
    """Files of at most 400 lines, functions of at most 70."""
    del fix
    return [line for file in _texts(files) for line in limits.problems(file, _read(root, file))]


def forbidden_text(root, files, fix):
    """No registry addresses, no paths of one machine."""
    del fix
    texts = [file for file in _texts(files) if not file.endswith(".lock")]
    return [line for file in texts for line in forbidden.problems(file, _read(root, file))]


ALL = (clang_format, buildifier, ruff, mypy, size_limits, forbidden_text)
