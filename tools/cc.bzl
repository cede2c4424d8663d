"""C and C++ targets of this project: cc_library and friends with the project's language and warnings.

All attributes are passed on. A target holds C++ or C sources, not both, because each language has
its own flags (-Werror is added by .bazelrc, for this repository only).
"""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

_WARNINGS = ["-Wall", "-Wextra"]
_CXX_OPTS = ["-std=c++20", "-Wnon-virtual-dtor"] + _WARNINGS
_C_OPTS = ["-std=c11"] + _WARNINGS

def _language_copts(name, srcs):
    c = [src for src in srcs if src.endswith(".c")]
    cxx = [src for src in srcs if src.endswith(".cc") or src.endswith(".cpp")]
    if c and cxx:
        fail("%s: put the C sources %s in a target of their own" % (name, c))
    return _C_OPTS if c else _CXX_OPTS

def or_cc_library(name, srcs = [], copts = [], **kwargs):
    cc_library(name = name, srcs = srcs, copts = _language_copts(name, srcs) + copts, **kwargs)

def or_cc_binary(name, srcs = [], copts = [], **kwargs):
    cc_binary(name = name, srcs = srcs, copts = _language_copts(name, srcs) + copts, **kwargs)

def or_cc_test(name, size, srcs = [], copts = [], tags = [], linkopts = [], **kwargs):
    """A cc_test; size is required. Each test has a network of its own (block-network)."""
    cc_test(
        name = name,
        size = size,
        srcs = srcs,
        copts = _language_copts(name, srcs) + copts,
        linkopts = ["-pthread"] + linkopts,
        tags = ["block-network"] + tags,
        **kwargs
    )
