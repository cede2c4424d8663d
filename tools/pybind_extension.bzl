"""Python extensions written with the pybind11 headers that torch ships.

pybind_library:   a cc_library of binding code (hidden symbols, kept whole by the linker)
pybind_extension: the importable .so made of such libraries

Another pybind11 would not share c10d's types, so torch's headers are the only ones on offer.
"""

load("@bazel_skylib//rules:copy_file.bzl", "copy_file")
load("@bazel_skylib//rules:write_file.bzl", "write_file")
load("@rules_cc//cc:defs.bzl", "cc_shared_library")
load("//tools:cc.bzl", "or_cc_library")

_TORCH = Label("@pypi//:torch")
_TORCH_LIBRARIES = [
    str(Label("@pypi//:site-packages/torch/lib/lib%s.so" % name))
    for name in ["torch", "torch_cpu", "torch_python", "c10"]
]

# Reading torch's headers takes 7 s, a source of ours 1 s more: sources are compiled so many at a time.
_SOURCES_PER_UNIT = 8

def _units(name, srcs):
    units = []
    for i in range(0, len(srcs), _SOURCES_PER_UNIT):
        unit = "%s_unit%d" % (name, i // _SOURCES_PER_UNIT)
        write_file(
            name = unit,
            out = unit + ".cc",
            content = [
                '#include "%s/%s"' % (native.package_name(), src)
                for src in srcs[i:i + _SOURCES_PER_UNIT]
            ] + [""],
        )
        units.append(unit + ".cc")
    return units

def pybind_library(name, srcs = [], copts = [], deps = [], **kwargs):
    """A library for pybind_extension: sees torch and pybind11, exports nothing.

    The sources are compiled in units of several (a "unity build"), so names in their anonymous
    namespaces are to differ within one library.

    Args:
      name: the target.
      srcs: C++ sources of this package.
      copts: as in cc_library.
      deps: as in cc_library.
      **kwargs: passed on to or_cc_library.
    """
    or_cc_library(
        name = name,
        srcs = _units(name, srcs),
        textual_hdrs = srcs,
        copts = ["-fvisibility=hidden"] + copts,
        # torch's operator registrations are static objects that nothing refers to.
        alwayslink = True,
        deps = deps + [_TORCH],
        **kwargs
    )

def pybind_extension(name, out, deps, libs = {}, visibility = None, **kwargs):
    """A Python extension that exports PyInit_<module> and nothing else.

    The shared libraries are linked by path and found at run time in `lib/` beside the extension, so
    no path of the build machine is left in it. torch's own are there once torch is imported.

    Args:
      name: the target; its output is the .so. NAME_libs holds the copies of `libs`.
      out: path of the .so in this package, such as "torch_openreg/_C.so".
      deps: pybind_library targets.
      libs: {label of a shared library: its file name}.
      visibility: of the extension and of NAME_libs.
      **kwargs: passed on to cc_shared_library.
    """
    folder, _, file_name = out.rpartition("/")
    module = file_name.removesuffix(".so")
    script = name + ".lds"
    write_file(
        name = name + "_lds",
        out = script,
        content = ["{ global: PyInit_%s; local: *; };" % module, ""],
    )
    linked = list(libs) + _TORCH_LIBRARIES
    cc_shared_library(
        name = name,
        shared_lib_name = out,
        additional_linker_inputs = [script] + linked,
        # --start-lib is gold's.
        features = ["-supports_start_end_lib"],
        user_link_flags = [
            "-Wl,--version-script=$(location %s)" % script,
            # gold, Bazel's default, leaves weak symbols in the dynamic table.
            "-fuse-ld=bfd",
            "-Wl,-soname," + file_name,
            "-Wl,-rpath,$ORIGIN/lib",
            "-pthread",
        ] + ["$(location %s)" % lib for lib in linked],
        deps = deps,
        visibility = visibility,
        **kwargs
    )
    copies = []
    for lib, lib_file in libs.items():
        copy = "%s/lib/%s" % (folder, lib_file)
        copies.append(copy)
        copy_file(
            name = "%s_%s" % (name, lib_file),
            src = lib,
            out = copy,
        )
    native.filegroup(
        name = name + "_libs",
        srcs = copies,
        visibility = visibility,
    )
