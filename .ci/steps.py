"""The steps of .ci/run, their times, and the sum of their results."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import results

ROOT = pathlib.Path(__file__).resolve().parent.parent
BAZEL = str(ROOT / "tools/bazel")
MONOREPO = ROOT / "tests/monorepo"
STEP_DEADLINE_S = 60 * 60

_LAYERS = ["//openreg/...", "//occl/..."]
_SWAP = "--@torch_openreg//openreg:runtime=//vendor:runtime"

# name: (folder, command). "test" and "build" are Bazel's; anything else runs as it is.
STEPS = {
    "tests": (ROOT, ["test", "//tests/..."]),
    "everything": (ROOT, ["test", "//..."]),
    "train_digits": (ROOT, [BAZEL, "run", "--config=ci", "//examples:train_digits"]),
    "arrows": (ROOT, [sys.executable, "tests/layering/check_arrows.py"]),
    "monorepo": (MONOREPO, ["test", "//..."]),
    "swapped_runtime": (MONOREPO, ["test", _SWAP, "//vendor:swapped_test"]),
    # With UBSan: --config=asan has both.
    "asan": (ROOT, ["test", "--config=asan", *_LAYERS]),
    "tsan": (ROOT, ["test", "--config=tsan", *_LAYERS]),
    "reproducible_wheel": (ROOT, [sys.executable, "tools/wheel/check_reproducible.py"]),
}


def run(command, folder):
    """Runs a command in a process group of its own, so that its end is the end of all of it."""
    process = subprocess.Popen(command, cwd=folder, start_new_session=True)
    try:
        return process.wait(STEP_DEADLINE_S)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            print(f"no end after {STEP_DEADLINE_S} s: stopped", flush=True)
            return 124
        raise


def step(name):
    """Runs one step; returns {what was counted: (passed, failed)}."""
    folder, command = STEPS[name]
    if command[0] != "test":
        code = run(command, folder)
        return {(name, 0): (int(code == 0), int(code != 0))}
    with tempfile.TemporaryDirectory() as temporary:
        events = os.path.join(temporary, "events.json")
        options = ["--config=ci", f"--build_event_json_file={events}"]
        code = run([BAZEL, command[0], *options, *command[1:]], folder)
        counted = results.count(events) if os.path.exists(events) else {}
    # An error that no test stands for (a target that does not load) is a failure too.
    if code != 0 and not any(failed for _, failed in counted.values()):
        counted[(f"{name}: exit code {code}", 0)] = (0, 1)
    # The same tests again, in a later step without another configuration, count once.
    kind = "plain" if name in ("tests", "everything") else name
    return {(kind, *key): value for key, value in counted.items()}


def main():
    """Runs the chosen steps, each of them even when one fails."""
    parser = argparse.ArgumentParser(prog=".ci/run")
    parser.add_argument("--list", action="store_true", help="name the steps")
    parser.add_argument("step", nargs="*", help="these steps instead of all")
    options = parser.parse_args()
    if options.list:
        print("\n".join(STEPS))
        return 0
    if unknown := set(options.step) - set(STEPS):
        parser.error(f"no such step: {', '.join(sorted(unknown))}")

    counted = {}
    lines = []
    for name in options.step or STEPS:
        print(f"==== {name}", flush=True)
        start = time.monotonic()
        found = step(name)
        counted |= found
        passed, failed = (sum(pair[i] for pair in found.values()) for i in (0, 1))
        lines.append(
            f"{name:20} {time.monotonic() - start:7.0f} s {passed:6} passed {failed:4} failed"
        )
        print(lines[-1], flush=True)
    print("====", *lines, sep="\n")
    for key, (_, failed) in counted.items():
        if failed:
            print("failed:", *(part for part in key if part))
    passed, failed = (sum(pair[i] for pair in counted.values()) for i in (0, 1))
    print(f"{passed} passed, {failed} failed", flush=True)
    return int(failed > 0 or passed == 0)


if __name__ == "__main__":
    sys.exit(main())
