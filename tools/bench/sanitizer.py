"""What the sanitizer costs: training steps with it on and off, in turn, in one process.

    tools/bazel run //tools/bench:sanitizer
    tools/bazel run //tools/bench:sanitizer -- --budget 20 --bar 3

The ratio is the time with the sanitizer over the time without, of medians and of minima. The exit
code is 1 if a ratio of medians is above the bar.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from device import STEPS, training_step


def measure(step: Callable[[], Any], budget_s: float) -> dict[str, float]:
    """Seconds per step: off and on take turns for `budget_s` seconds, at least seven times."""
    openreg = torch.get_device_module("openreg")

    def timed(on: bool) -> float:
        if on:
            openreg.sanitizer.enable()
        openreg.synchronize()
        start = time.perf_counter()
        step()
        openreg.synchronize()
        taken = time.perf_counter() - start
        openreg.sanitizer.disable()
        return taken

    for on in (False, True):
        timed(on)
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end or len(times[0]) < 7:
        for on in (False, True) if len(times[0]) % 2 == 0 else (True, False):
            times[on].append(timed(on))
    off, with_it = (statistics.median(side) for side in times)
    return {
        "off_ms": off * 1e3,
        "on_ms": with_it * 1e3,
        "ratio_median": with_it / off,
        "ratio_min": min(times[1]) / min(times[0]),
        "rounds": len(times[0]),
    }


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--budget", type=float, default=5.0, help="seconds for each model")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--bar", type=float, help="what no ratio of medians may exceed")
    p.add_argument("--json", help="write the numbers to this file")
    return p.parse_args()


def main() -> int:
    """The exit code."""
    import torch_openreg  # noqa: F401  (registers the device)

    args = parse_arguments()
    torch.set_num_threads(args.threads)
    records = []
    for name, make in STEPS.items():
        if not name.startswith("gpt"):
            continue
        record = measure(training_step(make(), "openreg", {"foreach": True}), args.budget)
        records.append({"name": name, **record})
        print(
            f"{name:18s} off {record['off_ms']:8.2f} ms  on {record['on_ms']:8.2f} ms  ratio of"
            f" medians {record['ratio_median']:5.2f}, of minima {record['ratio_min']:5.2f}"
            f"  ({record['rounds']} rounds)",
            flush=True,
        )
    if args.json:
        path = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), args.json)
        with open(path, "w") as file:
            json.dump(records, file, indent=1)
    return 0 if args.bar is None or all(r["ratio_median"] <= args.bar for r in records) else 1


if __name__ == "__main__":
    sys.exit(main())
