"""A first build with what was installed, before it is declared whole."""

import errno
import os
import shutil

from tools.bootstrap import processes
from tools.bootstrap.report import BootstrapError

_DEADLINE_S = 600
_FILES = {
    "MODULE.bazel": """\
module(name = "probe")

bazel_dep(name = "bazel_skylib", version = "0.0.0")
bazel_dep(name = "googletest", version = "0.0.0")
bazel_dep(name = "platforms", version = "0.0.0")
bazel_dep(name = "rules_cc", version = "0.0.0")
bazel_dep(name = "rules_python", version = "0.0.0")
""",
    "BUILD.bazel": """\
load("@bazel_skylib//rules:copy_file.bzl", "copy_file")
load("@rules_cc//cc:defs.bzl", "cc_binary")
load("@rules_python//python:defs.bzl", "py_library")

copy_file(
    name = "source",
    src = "probe.cc",
    out = "copied.cc",
)

cc_binary(
    name = "probe",
    srcs = [":source"],
)

py_library(
    name = "module",
    srcs = ["module.py"],
)

genrule(
    name = "run",
    outs = ["answer"],
    cmd = "$(execpath :probe) > $@",
    tools = [":probe"],
)
""",
    "probe.cc": '#include <cstdio>\n\nint main() { return std::puts("it works") < 0; }\n',
    "module.py": "",
}


def verify(prefix: str) -> None:
    """Builds and runs a C++ program with the Bazel of `prefix`; raises BootstrapError otherwise."""
    folder = os.path.join(prefix, "probe")
    workspace = os.path.join(folder, "workspace")
    os.makedirs(workspace)
    for name, text in _FILES.items():
        with open(os.path.join(workspace, name), "w", encoding="utf-8") as file:
            file.write(text)
    command = [
        os.path.join(prefix, "usr/bin/bazel"),
        "--nosystem_rc",
        "--nohome_rc",
        "--batch",
        f"--bazelrc={prefix}/bazelrc",
        f"--output_user_root={folder}/root",
        "build",
        "--color=no",
        "--curses=no",
        "--noshow_progress",
        "//...",
    ]
    code, _, errors = processes.output(command, _DEADLINE_S, cwd=workspace, keep_lock=False)
    answer = os.path.join(workspace, "bazel-bin", "answer")
    if code != 0 or not os.path.isfile(answer):
        lines = [line for line in errors.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("ERROR", "FATAL"))]
        if "No space left" in errors:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reason = (told or lines or [f"exit code {code}"])[0]
        raise BootstrapError(
            f"the Bazel that was installed does not work here ({reason}): see that 'g++' compiles "
            "a program on this machine and run this again."
        )
    processes.output(["chmod", "-R", "u+w", folder], 60)
    shutil.rmtree(folder)
