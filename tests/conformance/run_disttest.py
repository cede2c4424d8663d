"""Run torch's own DistributedTest, which its wheel ships, on any backend and device.

usage: run_disttest.py [BACKEND] [--module M] [--device D] [--mode M,M] [--world-size N,N] ...

modes
  asis            what torch lets a plug-in do by itself; tensors are on the CPU.
  default-device  the CPU and gloo half of the suite, with tensors on the device.
  port            the CUDA and NCCL half, with the device and backend in their place.

Prints a line per test, the reasons of what did not pass and a table of the runs. The module must
register the device and the backend when it is imported. The suite checks few values, so it adds to
tests/distributed and does not replace it.
"""

import argparse
import collections
import contextlib
import importlib
import itertools
import json
import logging
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

from exclusions import EXCLUSIONS


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backend", nargs="?", default="occl")
    parser.add_argument("--module", action="append", default=[])
    parser.add_argument("--device", default="openreg")
    parser.add_argument(
        "--own-devices",
        action="store_true",
        help="in the mode default-device, too, a device for each rank (port does so always): for "
        "libraries that refuse ranks that share one; tests of objects with tensors then fail",
    )
    parser.add_argument("--world-size", default="2", help="a number, or several: 2,4,8")
    parser.add_argument("--mode", default="port", help="see above; several: port,default-device")
    parser.add_argument("-k", dest="only", default="", help="run tests that match this expression")
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th test from I on")
    parser.add_argument("--budget", type=float, default=3600, help="stop after this many seconds")
    parser.add_argument("--test-timeout", type=int, default=120, help="seconds for each test")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--list", action="store_true", help="name the tests and stop")
    options = parser.parse_args(arguments)
    options.module = options.module or ["torch_openreg"]
    options.modes = options.mode.split(",")
    if unknown := set(options.modes) - {"asis", "default-device", "port"}:
        parser.error(f"unknown mode: {', '.join(unknown)}")
    options.world_sizes = [int(size) for size in options.world_size.split(",")]
    return options


def prepare(options, logs, folder):
    """The environment that the suite, the fork server and the ranks read."""
    config = {
        "backend": options.backend,
        "modules": options.module,
        "device": options.device,
        "mode": options.mode,
        "own_devices": options.own_devices,
        "logs": logs,
    }
    here = os.path.dirname(os.path.abspath(__file__))
    os.environ.update(
        BACKEND=options.backend,
        WORLD_SIZE=options.world_size,
        OMP_NUM_THREADS="1",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(options.test_timeout),
        DISTTEST_CONFIG=json.dumps(config),
        PYTHONWARNINGS="ignore",
        TEMP_DIR=folder,
        INIT_METHOD=f"file://{folder}/init_dir/shared_init_file",
        PYTHONPATH=os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])]),
    )
    sys.path.insert(0, here)
    multiprocessing.set_forkserver_preload(["disttest_suite"])


def excluded(name, mode):
    names = (name, f"{mode}:{name}")
    return next(
        (why for what, why in EXCLUSIONS.items() if any(re.match(what, n) for n in names)), None
    )


def run_one(suite, name, logs):
    """("pass" | "fail" | "skip", why)"""
    result = unittest.TestResult()
    with (
        open(os.path.join(logs, f"{name}.parent.log"), "w") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        suite(name).run(result)
    if result.skipped:
        return "skip", result.skipped[0][1]
    if result.failures or result.errors:
        text = (result.failures + result.errors)[0][1].strip().splitlines()
        errors = [line for line in text if re.match(r"\S*(Error|Exception|Failure)\b", line)]
        return "fail", (errors or text)[-1][:300]
    return "pass", ""


TABLE_HEAD = """
| backend | device | mode | ranks | passed | failed | skipped | excluded | not run | s |
|---|---|---|---|---|---|---|---|---|---|"""


def report(options, results, seconds):
    """Prints why what did not pass did not. (the counts, the run's row of the table)"""
    counts = collections.Counter(outcome for outcome, _ in results.values())
    for outcome in ("fail", "skip", "excluded"):
        reasons = collections.defaultdict(list)
        for name, (found, why) in results.items():
            if found == outcome:
                reasons[why].append(name)
        if reasons:
            print(f"\n{outcome}:")
        for why, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
            shown = ", ".join(names if outcome != "skip" else names[:2])
            print(f"  {len(names):3} {why}: {shown}")
    row = (
        f"| {options.backend} | {options.device} | {options.mode} | {options.world_size} "
        f"| {counts['pass']} | {counts['fail']} | {counts['skip']} | {counts['excluded']} "
        f"| {counts['not run']} | {seconds:.0f} |"
    )
    return counts, row


def run(options):
    with (
        tempfile.TemporaryDirectory(prefix="disttest-") as logs,
        tempfile.TemporaryDirectory(prefix="disttest-") as folder,
    ):
        prepare(options, logs, folder)
        module = importlib.import_module("disttest_suite")
        module.fresh_folders()
        logging.getLogger("torch.testing._internal.common_distributed").setLevel(logging.WARNING)
        importlib.import_module(
            "torch.testing._internal.common_distributed"
        ).TIMEOUT_OVERRIDE.clear()
        names = unittest.TestLoader().getTestCaseNames(module.DistSuite)
        first, step = map(int, options.shard.split("/"))
        names = [name for name in names if re.search(options.only, name)][first::step]
        if options.list:
            print("\n".join(names))
            return 0
        results, begin = {}, time.monotonic()
        for name in names:
            start = time.monotonic()
            if start - begin > options.budget:
                results[name] = ("not run", "the budget is spent")
                continue
            why = excluded(name, options.mode)
            results[name] = ("excluded", why) if why else run_one(module.DistSuite, name, logs)
            outcome, why = results[name]
            print(f"{outcome:8} {time.monotonic() - start:6.1f}s {name} {why[:150]}", flush=True)
        counts, row = report(options, results, time.monotonic() - begin)
        print(f"{TABLE_HEAD}\n{row}", flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump(
                    {"options": vars(options), "row": row, "results": results}, file, indent=1
                )
        return 1 if counts["fail"] or counts["not run"] else 0


def run_all(arguments, options):
    """Each mode and number of ranks in a process of its own, and one table of them."""
    rows, worst = [], 0
    for mode, size in itertools.product(options.modes, options.world_sizes):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            single = ["--mode", mode, "--world-size", str(size), "--json", file.name]
            code = subprocess.call([sys.executable, __file__, *arguments, *single])
            worst = max(worst, abs(code))
            text = file.read()
        rows.append(
            json.loads(text)["row"]
            if text
            else f"| {options.backend} | {options.device} | {mode} | {size} | died: {code} |"
        )
    print("\n".join([TABLE_HEAD, *rows]))
    return worst


if __name__ == "__main__":
    parsed = parse(sys.argv[1:])
    several = len(parsed.modes) * len(parsed.world_sizes) > 1
    sys.exit(run_all(sys.argv[1:], parsed) if several else run(parsed))
