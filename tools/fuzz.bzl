"""Fuzz targets that are tests: the corpus, and a number of mutations of it."""

load("//tools:cc.bzl", "or_cc_test")

_DRIVER = Label("//tools/fuzz:driver")

def or_fuzz_test(name, size, srcs, corpus, deps, runs = 500, **kwargs):
    """A target that defines LLVMFuzzerTestOneInput, run on its corpus and on mutations of it.

    As a test it always does the same. To search: tools/bazel run --config=fuzz :name -- \\
    -seconds=600 -seed=N corpus-folder (g++), or --config=libfuzzer (clang).

    Args:
      name: the target.
      size: as in cc_test.
      srcs: its sources.
      corpus: files; what they are for is in their names.
      deps: what is tested.
      runs: mutations in the test.
      **kwargs: passed on to cc_test.
    """
    or_cc_test(
        name = name,
        size = size,
        srcs = srcs,
        args = ["-runs=%d" % runs, "-seed=1"] + ["$(rootpath %s)" % file for file in corpus],
        data = corpus,
        deps = deps + [_DRIVER],
        **kwargs
    )
