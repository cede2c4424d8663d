"""Bazel modules without the central registry: what the generated rc file says, and why.

Debian packages some rule sets, as a tree without a registry. Each is named in an override, and the
registry is an empty folder, so that nothing is looked for on the network. Modules that Bazel's own
bazel_tools asks for and that this repository never uses are stubs. Only the Bazel that the
bootstrap installed reads this rc file: MODULE.bazel stays as it is for any other Bazel.
"""

from __future__ import annotations

import os
import shutil

from tools.bootstrap.prefix import BAZEL_SHARE, JAVA

# Where Debian has the rule sets, below the prefix.
_PACKAGED = {
    "bazel_features": f"{BAZEL_SHARE}/tools/features",
    "bazel_skylib": f"{BAZEL_SHARE}/tools/skylib",
    "platforms": f"{BAZEL_SHARE}/tools/platforms",
    "rules_cc": f"{BAZEL_SHARE}/rules/cc",
    "rules_java": f"{BAZEL_SHARE}/rules/java",
    "rules_license": f"{BAZEL_SHARE}/rules/license",
    "rules_proto": f"{BAZEL_SHARE}/rules/proto",
    "rules_python": f"{BAZEL_SHARE}/rules/python",
    "rules_shell": f"{BAZEL_SHARE}/rules/shell",
}
_EMPTY_BUILDOZER = """\
def _empty_impl(ctx):
    ctx.file("BUILD.bazel")

_empty = repository_rule(implementation = _empty_impl)

def _extension_impl(ctx):
    _empty(name = "buildozer_binary")

buildozer_binary = module_extension(implementation = _extension_impl)
"""
_GOOGLETEST = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "gtest",
    srcs = glob(
        [
            "googletest/src/*.cc",
            "googletest/src/*.h",
            "googletest/include/gtest/**/*.h",
            "googlemock/src/*.cc",
            "googlemock/include/gmock/**/*.h",
        ],
        exclude = [
            "googletest/src/gtest-all.cc",
            "googletest/src/gtest_main.cc",
            "googlemock/src/gmock-all.cc",
            "googlemock/src/gmock_main.cc",
        ],
    ),
    hdrs = glob([
        "googletest/include/gtest/*.h",
        "googlemock/include/gmock/*.h",
    ]),
    copts = ["-std=c++20"],
    includes = [
        "googlemock",
        "googlemock/include",
        "googletest",
        "googletest/include",
    ],
    linkopts = ["-pthread"],
)

cc_library(
    name = "gtest_main",
    srcs = ["googlemock/src/gmock_main.cc"],
    copts = ["-std=c++20"],
    deps = [":gtest"],
)
"""
# An override of a module that is not in the graph is an error, and which modules are in it depends
# on the workspace. bazel_tools puts apple_support into every graph: so its stub asks for all.
_ANCHOR = "apple_support"
_STUBS: dict[str, dict[str, str]] = {
    _ANCHOR: {
        "platforms/BUILD.bazel": 'package(default_visibility = ["//visibility:public"])\n',
    },
    "buildozer": {"BUILD.bazel": "", "buildozer_binary.bzl": _EMPTY_BUILDOZER},
    "googletest": {"BUILD.bazel": _GOOGLETEST},
    "protobuf": {"BUILD.bazel": ""},
    "zlib": {"BUILD.bazel": ""},
}
_HEADER = """\
# Written by tools/bootstrap for the Bazel beside it, which alone reads it; do not edit.
#
# It makes any workspace of this repository resolve without the central registry: modules come from
# Debian's packages, those that are never used are stubs. Every module named here is in every graph
# (the stub of {anchor} asks for all of them), so no override is of a module that is not there.
"""


def write(prefix: str) -> None:
    """Writes PREFIX/bazelrc and the folders it names."""
    modules = os.path.join(prefix, "modules")
    shutil.rmtree(modules, ignore_errors=True)
    folders = {name: os.path.join(prefix, path) for name, path in _PACKAGED.items()}
    for name, files in _STUBS.items():
        folders[name] = os.path.join(modules, name)
        for path, text in {"MODULE.bazel": _module_file(name), **files}.items():
            path = os.path.join(folders[name], path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    for part in ("googletest", "googlemock"):
        shutil.copytree(
            os.path.join(prefix, "usr/src/googletest", part),
            os.path.join(folders["googletest"], part),
            ignore=shutil.ignore_patterns("test", "docs", "samples", "BUILD.bazel"),
        )
    registry = os.path.join(prefix, "registry")
    os.makedirs(registry, exist_ok=True)
    os.makedirs(os.path.join(prefix, "tmp"), exist_ok=True)
    lines = [
        f"startup --install_base={prefix}/{BAZEL_SHARE}",
        "startup --trust_install_base",
        f"startup --server_javabase={prefix}/{JAVA}",
        "startup --max_idle_secs=1800",
        # Debian's build leaves a file there at each start of the server; tools/bazel removes it.
        f"startup --host_jvm_args=-Djava.io.tmpdir={prefix}/tmp",
        "startup --host_jvm_args=-Xmx2g",
        "startup --host_jvm_args=-XX:+UseSerialGC",
        f"common --registry=file://{registry}",
        "common --lockfile_mode=off",
        "common --noenable_workspace",
    ]
    lines += [f"common --override_module={name}={path}" for name, path in sorted(folders.items())]
    with open(os.path.join(prefix, "bazelrc"), "w", encoding="utf-8") as file:
        file.write(_HEADER.format(anchor=_ANCHOR))
        file.writelines(_quoted(line) + "\n" for line in lines)


def _module_file(name: str) -> str:
    text = f'module(name = "{name}", version = "0.0.0")\n'
    wanted = sorted({**_PACKAGED, **_STUBS}) if name == _ANCHOR else []
    if name == "googletest":
        wanted = ["rules_cc"]
    for other in wanted:
        if other != name:
            text += f'bazel_dep(name = "{other}", version = "0.0.0")\n'
    return text


def _quoted(line: str) -> str:
    """Quotes the option of an rc line where its path has a space."""
    command, option = line.split(" ", 1)
    return f'{command} "{option}"' if " " in option else line
