"""The machine's Python as a Bazel toolchain: @python_interpreter.

  :toolchain         what MODULE.bazel registers
  :headers           cc_library with Python.h
  :interpreter.json  path and version; @pypi is made anew when its content changes
  :defs.bzl          PYTHON_TAG, such as "cp311"

The interpreter is $TORCH_OPENREG_PYTHON, else the first of python3.11 and python3 on PATH; inside a
virtual environment, the one that the environment was made from.
"""

_CANDIDATES = ["python3.11", "python3"]

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_python//python:defs.bzl", "py_runtime", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

exports_files(["interpreter.json"])

py_runtime(
    name = "runtime",
    interpreter_path = "{path}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "runtime_pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    exec_compatible_with = ["@platforms//os:linux"],
    target_compatible_with = ["@platforms//os:linux"],
    toolchain = ":runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)

cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"], allow_empty = True){extra_deps},
    includes = ["include"],
)
"""

# Without the headers only what compiles against Python.h fails, with a sentence that helps.
_NO_HEADERS = """\
genrule(
    name = "missing_headers",
    outs = ["include/Python.h"],
    cmd = "echo 'Python.h of {path} was not found: install the headers (Debian: python{version}-dev), " +
          "then run: bazel shutdown' >&2; exit 1",
)
"""

def _find_interpreter(ctx):
    chosen = ctx.os.environ.get("TORCH_OPENREG_PYTHON", "")
    candidates = [chosen] if chosen else _CANDIDATES
    for candidate in candidates:
        found = ctx.path(candidate) if candidate.startswith("/") else ctx.which(candidate)
        if found and found.exists:
            return found
    fail("No Python interpreter: looked for %s. Install Python 3.11 or set TORCH_OPENREG_PYTHON." %
         ", ".join(candidates))

def _interpreter_repository_impl(ctx):
    python = _find_interpreter(ctx)
    result = ctx.execute([python, "-I", ctx.path(ctx.attr._probe)])
    if result.return_code != 0:
        fail("%s did not describe itself: %s" % (python, result.stderr))
    info = json.decode(result.stdout)
    ctx.file("interpreter.json", result.stdout)
    text = _BUILD.format(
        path = info["path"],
        extra_deps = "" if info["include"] else " + [\":missing_headers\"]",
    )
    if info["include"]:
        ctx.symlink(info["include"], "include")
    else:
        text += _NO_HEADERS.format(path = info["path"], version = info["version"])
    ctx.file("BUILD.bazel", text)
    ctx.file("defs.bzl", "PYTHON_TAG = \"%s\"\n" % info["tag"])

interpreter_repository = repository_rule(
    implementation = _interpreter_repository_impl,
    attrs = {"_probe": attr.label(default = "//tools/python:probe.py")},
    configure = True,
    # Cheap, and asked again by each new Bazel server: the machine's Python may have changed.
    local = True,
)
