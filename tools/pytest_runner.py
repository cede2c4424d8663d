"""Runs pytest as Bazel's test protocol wants it. The main program of every pytest_test.

From the environment: XML_OUTPUT_FILE (results of each case), TEST_TOTAL_SHARDS, TEST_SHARD_INDEX
and TEST_SHARD_STATUS_FILE (which part to run), TESTBRIDGE_TEST_ONLY (--test_filter).
"""

import faulthandler
import os
import pathlib
import signal
import sys

import pytest


class Selection:
    """pytest plugin: keeps the cases of this shard that the filter names."""

    def __init__(self, environ):
        self.shards = int(environ.get("TEST_TOTAL_SHARDS") or 1)
        self.index = int(environ.get("TEST_SHARD_INDEX") or 0)
        self.filter = environ.get("TESTBRIDGE_TEST_ONLY") or ""
        self.collected = 0

    def arguments(self):
        """Returns pytest arguments: a filter that is no part of a node id is a -k expression."""
        return ["-k", self.filter] if self.filter and "::" not in self.filter else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config, items):
        """Deselects what the filter or the shard leaves out."""
        self.collected = len(items)
        wanted = [item for item in items if "::" not in self.filter or self.filter in item.nodeid]
        # Round-robin: neighbours, often of one slow class, go to different shards.
        kept = set(wanted[self.index :: self.shards])
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]

    def exit_code(self, code):
        """Nothing collected is a failure; nothing left by a shard or a filter is not."""
        if code != pytest.ExitCode.NO_TESTS_COLLECTED:
            return int(code)
        if self.collected and (self.filter or self.shards > 1):
            print(f"No case of this shard matches the filter {self.filter!r}.")
            return 0
        print("No test was collected: a test file without tests is a mistake.", file=sys.stderr)
        return int(code)


def prepare_children(environ, path):
    """Lets the processes that tests start find the same packages and a home they may write to."""
    environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, path)))
    environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # Plugins that the machine's own Python happens to have are no part of the project.
    environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if "TEST_TMPDIR" in environ:
        environ.setdefault("HOME", environ["TEST_TMPDIR"])


def main(arguments):
    """Returns pytest's exit code."""
    # The folder of this program is no place to import from.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    prepare_children(os.environ, sys.path)
    # Bazel ends a test that is out of time with SIGTERM: show where it stood.
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)

    selection = Selection(os.environ)
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        pathlib.Path(os.environ["TEST_SHARD_STATUS_FILE"]).touch()
    command = ["-p", "no:cacheprovider", "--rootdir=.", "-ra", "--durations=5", "--durations-min=1"]
    if "XML_OUTPUT_FILE" in os.environ:
        command.append("--junitxml=" + os.environ["XML_OUTPUT_FILE"])
    code = pytest.main([*command, *selection.arguments(), *arguments], plugins=[selection])
    return selection.exit_code(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
