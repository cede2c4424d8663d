"""The monorepo's own Python packages: @monorepo_pypi, made by pip from requirements.txt.

torch comes from torch_openreg: a process must not have two of them.
"""

_BUILD = """\
load("@rules_python//python:defs.bzl", "py_library")

py_library(
    name = "packages",
    srcs = glob(["packages/**/*.py"]),
    imports = ["packages"],
    visibility = ["//visibility:public"],
)
"""

def _packages_impl(ctx):
    python = ctx.which("python3")
    result = ctx.execute([
        python,
        "-m",
        "pip",
        "install",
        "--target=packages",
        "--require-hashes",
        "--no-deps",
        "--no-compile",
        "--requirement",
        ctx.path(ctx.attr.requirements),
    ], timeout = 600)
    if result.return_code != 0:
        fail("pip: " + result.stderr)
    ctx.file("BUILD.bazel", _BUILD)

_packages = repository_rule(
    implementation = _packages_impl,
    attrs = {"requirements": attr.label(mandatory = True)},
)

def _python_impl(_ctx):
    _packages(
        name = "monorepo_pypi",
        requirements = "//third_party/python:requirements.txt",
    )

python = module_extension(implementation = _python_impl)
