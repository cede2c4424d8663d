"""The locked Python packages as one repository: @pypi.

  :packages       py_library: everything in the lock file, importable
  :NAME           the same under the name of a requirement (:numpy, :pytest, ...; torch is :torch_py)
  :torch          cc_library: torch's headers; for //python and //tests only
  :site-packages  the folder itself
  site-packages/torch/lib/*.so, to be linked by path; for //python and //tests only

site-packages is one source directory, so that 20,000 files do not become 20,000 inputs of each
action. pip runs with its user's configuration (index, find-links). The repository is made anew when
the lock file or the interpreter changes.
"""

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_python//python:defs.bzl", "py_library")

package(default_visibility = ["//visibility:public"])

_TORCH_USERS = [
    "@@{main}//python:__subpackages__",
    "@@{main}//tests:__subpackages__",
]

exports_files(["site-packages"])

exports_files(
    glob(["site-packages/torch/lib/*.so"]),
    visibility = _TORCH_USERS,
)

py_library(
    name = "packages",
    data = ["site-packages"],
    imports = ["site-packages"],
)

cc_library(
    name = "torch",
    hdrs = ["site-packages/torch/include"],
    includes = [
        "site-packages/torch/include",
        "site-packages/torch/include/torch/csrc/api/include",
    ],
    visibility = _TORCH_USERS,
    deps = ["@python_interpreter//:headers"],
)

# Kineto's headers include each other without a folder: only for those who write a profiler.
cc_library(
    name = "kineto",
    includes = ["site-packages/torch/include/kineto"],
    visibility = _TORCH_USERS,
    deps = [":torch"],
)
"""

_ALIAS = """
alias(
    name = "{name}",
    actual = ":packages",
)
"""

def _target_name(requirement):
    name = requirement.split("=")[0].strip().replace("-", "_")
    return "torch_py" if name == "torch" else name

def _packages_repository_impl(ctx):
    info = json.decode(ctx.read(ctx.attr.interpreter))
    version = info["version"]
    lock = ctx.path(ctx.attr.requirements).dirname.get_child(
        "requirements_%s.lock" % version.replace(".", "_"),
    )
    if not lock.exists:
        fail("There is no lock file for Python %s: run \"%s tools/python/lock\" to write %s." %
             (version, info["path"], lock.basename))
    ctx.watch(lock)

    ctx.report_progress("Installing the locked Python packages with pip (about a minute)")
    result = ctx.execute(
        [info["path"], "-I", ctx.path(ctx.attr._programs[0]), lock, "site-packages"],
        # The results of byte-compiling are wanted, whatever the user's shell says.
        environment = {"PYTHONDONTWRITEBYTECODE": ""},
        timeout = 3600,
    )
    if result.return_code != 0:
        fail("The Python packages could not be installed:\n" + result.stderr)

    requirements = [
        line.strip()
        for line in ctx.read(ctx.attr.requirements).splitlines()
        if line.strip() and not line.startswith("#")
    ]
    main = Label("//tools/python:packages.bzl").workspace_name
    ctx.file("BUILD.bazel", _BUILD.format(main = main) + "".join([
        _ALIAS.format(name = _target_name(requirement))
        for requirement in requirements
    ]))

packages_repository = repository_rule(
    implementation = _packages_repository_impl,
    attrs = {
        "interpreter": attr.label(mandatory = True),
        "requirements": attr.label(default = "//tools/python:requirements.in"),
        "_programs": attr.label_list(default = [
            "//tools/python:install.py",
            "//tools/python:find_pip.py",
            "//tools/python:lockfile.py",
            "//tools/python:store.py",
        ]),
    },
)
