"""Python tests that run under pytest."""

load("@rules_python//python:defs.bzl", "py_test")

_RUNNER = Label("//tools:pytest_runner.py")
_PACKAGES = Label("@pypi//:packages")

def _is_test(src):
    base = src.rpartition("/")[2].rpartition(":")[2]
    return base.startswith("test_") or base.endswith("_test.py")

def pytest_test(name, size, srcs, deps = [], args = [], env = {}, tags = [], **kwargs):
    """A py_test that runs pytest on those of its sources that are named test_*.py or *_test.py.

    Reports each case in test.xml, honours shard_count and --test_filter (a -k expression or a part of
    a node id), and fails when it collects nothing. Processes that the test starts (multiprocessing,
    sys.executable, torchrun) import the same packages. Each test has a network of its own.

    Args:
      name: the target.
      size: as in py_test, required.
      srcs: test files and their helpers (conftest.py too).
      deps: py_library targets; the locked packages are always there.
      args: further arguments for pytest.
      env: as in py_test. One OpenMP thread a process, unless it says otherwise.
      tags: as in py_test.
      **kwargs: passed on to py_test.
    """
    tests = [src for src in srcs if _is_test(src)]
    if not tests:
        fail("%s: no source is named test_*.py or *_test.py: pytest would collect nothing" % name)
    py_test(
        name = name,
        size = size,
        srcs = srcs + [_RUNNER],
        main = _RUNNER,
        args = ["$(rootpath %s)" % test for test in tests] + args,
        env = {"OMP_NUM_THREADS": "1"} | env,
        legacy_create_init = False,
        tags = ["block-network"] + tags,
        deps = deps + [_PACKAGES],
        **kwargs
    )
