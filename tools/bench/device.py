"""openreg against the CPU in one process: training steps, dispatch, copies, memory.

Both sides take turns; ratios are openreg's time over the CPU's, medians (1: as fast). Whole steps
(forward, backward, optimizer), single operators, and copies in GB/s against memcpy.

    tools/bazel run //tools/bench:device
    tools/bazel run //tools/bench:device -- --only steps --threads 2
"""

from __future__ import annotations

import argparse
import concurrent.futures
import copy
import functools
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from models import Workload, gpt, mlp, resnet

SECTIONS = ("steps", "operators", "copies", "memory")
Thunk = Callable[[], Any]
# Processor time, of all threads of the process, tells something on a machine that others use, too.
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}

STEPS: dict[str, Callable[[], Workload]] = {
    "mlp, batch 4": functools.partial(mlp, batch=4),
    "mlp, batch 256": functools.partial(mlp, batch=256),
    "resnet, batch 2": functools.partial(resnet, batch=2),
    "resnet, batch 16": functools.partial(resnet, batch=16),
    "gpt, 1x32 tokens": functools.partial(gpt, depth=2, width=128, batch=1, length=32),
    "gpt, 4x128 tokens": functools.partial(gpt, batch=4),
}
OPTIMIZERS: dict[str, dict[str, bool]] = {"foreach": {"foreach": True}, "fused": {"fused": True}}


def synchronize() -> None:
    """Waits for openreg."""
    torch.get_device_module("openreg").synchronize()


def medians(cpu: Thunk, openreg: Thunk, args: argparse.Namespace) -> tuple[float, float, int]:
    """Seconds per call of each; batches of at least 200 us take turns."""
    clock = CLOCKS[args.clock]

    def batch(call: Thunk, calls: int) -> float:
        synchronize()
        start = clock()
        for _ in range(calls):
            call()
        synchronize()
        return (clock() - start) / calls

    for call in (cpu, openreg):
        batch(call, 3)
    calls = max(1, round(2e-4 / batch(cpu, 3)))
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + args.budget
    while time.perf_counter() < end or len(times[0]) < 7:
        order = (0, 1) if len(times[0]) % 2 == 0 else (1, 0)
        for side in order:
            times[side].append(batch((cpu, openreg)[side], calls))
    return statistics.median(times[0]), statistics.median(times[1]), len(times[0])


def training_step(workload: Workload, device: str, options: dict[str, bool]) -> Thunk:
    """One step of AdamW on the device."""
    model = copy.deepcopy(workload.model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    inputs, targets = (t.to(device) for t in workload.batch(torch.Generator().manual_seed(0)))

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = workload.loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


def small_operators() -> dict[str, Callable[[str], Thunk]]:
    """Name to a maker of the call on a device."""

    def add(device: str) -> Thunk:
        a, b = torch.ones(8, device=device), torch.ones(8, device=device)
        return lambda: a + b

    def add_in_place(device: str) -> Thunk:
        a, b = torch.ones(8, device=device), torch.ones(8, device=device)
        return lambda: a.add_(b)

    def view(device: str) -> Thunk:
        a = torch.ones(8, 8, device=device)
        return lambda: a.view(64)[3:9].unsqueeze(0)

    def item(device: str) -> Thunk:
        a = torch.ones((), device=device)
        return a.item

    def foreach(lists: int, call: Callable[..., Any], device: str) -> Thunk:
        many = [[torch.ones(16, device=device) for _ in range(64)] for _ in range(lists)]
        return lambda: call(*many)

    def matmul(device: str) -> Thunk:
        a = torch.ones(64, 64, device=device)
        return lambda: a @ a

    def empty(device: str) -> Thunk:
        return lambda: torch.empty(8, device=device)

    return {
        "add of 8": add,
        "add_ of 8": add_in_place,
        "three views": view,
        "item": item,
        "foreach mul_ of 64 tensors": functools.partial(
            foreach, 1, lambda a: torch._foreach_mul_(a, 1.0)
        ),
        "foreach mul of 64 tensors": functools.partial(
            foreach, 1, lambda a: torch._foreach_mul(a, 1.0)
        ),
        "foreach add_ of 64 tensors": functools.partial(
            foreach, 2, lambda a, b: torch._foreach_add_(a, b, alpha=0.0)
        ),
        "foreach lerp_ of 64 tensors": functools.partial(
            foreach, 2, lambda a, b: torch._foreach_lerp_(a, b, 0.5)
        ),
        "foreach addcdiv_ of 64 tensors": functools.partial(
            foreach, 3, lambda a, b, c: torch._foreach_addcdiv_(a, b, c, 0.0)
        ),
        "64x64 matmul": matmul,
        "empty": empty,
    }


def report(records: list[dict[str, Any]], name: str, unit: float, **values: Any) -> None:
    """Notes a comparison and prints its line."""
    cpu, openreg = values["cpu_s"], values["openreg_s"]
    symbol = {1e3: "ms", 1e6: "us"}[unit]
    records.append({"name": name, "ratio": openreg / cpu, **values})
    print(
        f"{name:34s} cpu {cpu * unit:9.3f} {symbol}  openreg {openreg * unit:9.3f} {symbol}  ratio"
        f" {openreg / cpu:5.2f}  more {(openreg - cpu) * 1e6:8.2f} us",
        flush=True,
    )


def run_steps(args: argparse.Namespace, records: list[dict[str, Any]]) -> None:
    """Training steps with both kinds of optimizer."""
    for name, make in STEPS.items():
        for kind, options in OPTIMIZERS.items():
            torch.manual_seed(0)
            workload = make()
            sides = [training_step(workload, device, options) for device in ("cpu", "openreg")]
            cpu, openreg, batches = medians(*sides, args)
            label = f"step: {name}, {kind}"
            report(records, label, 1e3, cpu_s=cpu, openreg_s=openreg, batches=batches)


def run_operators(args: argparse.Namespace, records: list[dict[str, Any]]) -> None:
    """Operators so small that dispatch is all there is."""
    with torch.no_grad():
        for name, make in small_operators().items():
            cpu, openreg, batches = medians(make("cpu"), make("openreg"), args)
            report(records, name, 1e6, cpu_s=cpu, openreg_s=openreg, batches=batches)


def run_copies(args: argparse.Namespace, records: list[dict[str, Any]]) -> None:
    """Against a copy between CPU tensors of the same size."""
    for size in (4 << 10, 1 << 20, 64 << 20):
        host, other = torch.ones(size // 4), torch.ones(size // 4)
        device, second = host.to("openreg"), host.to("openreg")
        kinds = {
            "host to device": lambda d=device, h=host: d.copy_(h),
            "device to host": lambda d=device, h=host: h.copy_(d),
            "device to device": lambda d=device, s=second: s.copy_(d),
        }
        memcpy = functools.partial(other.copy_, host)
        for name, call in kinds.items():
            cpu, openreg, batches = medians(memcpy, call, args)
            label = f"{name}, {size >> 10} KB ({size / openreg / 1e9:.1f} GB/s)"
            report(records, label, 1e6, cpu_s=cpu, openreg_s=openreg, batches=batches)


def run_memory(args: argparse.Namespace, records: list[dict[str, Any]]) -> None:
    """Peak memory of training steps: live bytes by the allocators, and what the process takes.

    The optimizer is told how to work: by itself it would work on lists on openreg (as on CUDA),
    which takes one more copy of the parameters, and on one tensor after the other on the CPU.
    """
    for kind in OPTIMIZERS:
        residents = [in_new_process(resident_peak, d, kind, args) for d in ("openreg", "cpu")]
        for name, openreg, cpu in (
            ("live bytes", live_peak_openreg(kind), live_peak_cpu(kind)),
            ("resident set", *residents),
        ):
            label = f"peak memory, {kind}, {name}"
            records.append({"name": label, "cpu_bytes": cpu, "openreg_bytes": openreg})
            print(
                f"{label} of a gpt step: cpu {cpu} B, openreg {openreg} B, ratio "
                f"{openreg / cpu:.3f}",
                flush=True,
            )


def live_peak_openreg(kind: str) -> int:
    """Bytes that the caching allocator has handed out at most, with what it rounds up."""
    module = torch.get_device_module("openreg")
    workload = gpt(batch=4)
    training_step(workload, "openreg", OPTIMIZERS[kind])()  # whatever the first step sets up
    synchronize()
    module.empty_cache()
    module.reset_peak_memory_stats()
    before = module.memory_allocated()
    step = training_step(workload, "openreg", OPTIMIZERS[kind])
    step()
    synchronize()
    return int(module.max_memory_allocated() - before)


def live_peak_cpu(kind: str) -> int:
    """Bytes that the same step has allocated at most on the CPU."""
    from torch.profiler import ProfilerActivity, profile

    workload = gpt(batch=4)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = training_step(workload, "cpu", OPTIMIZERS[kind])
        step()
    return peak_of(profiler)


def in_new_process(function: Callable[..., int], *args: Any) -> int:
    """The result of a call in a process that has done nothing else."""
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as executor:
        return executor.submit(function, *args).result(timeout=300)


def resident_peak(device: str, kind: str, args: argparse.Namespace) -> int:
    """Bytes by which building and training a model raise the peak of the resident set."""
    import torch_openreg  # noqa: F401  (registers the device)

    torch.set_num_threads(args.threads)

    def step_of(**size: int) -> Thunk:
        with torch.device(device):  # no copy of the parameters is ever made on the host
            workload = gpt(**size)
        return training_step(workload, device, OPTIMIZERS[kind])

    step_of(depth=1, width=32, batch=1, length=8)()  # loads libraries
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is now the present size
    before = process_status("VmRSS")
    step = step_of(batch=4)
    for _ in range(3):
        step()
    return process_status("VmHWM") - before


def process_status(field: str) -> int:
    """Bytes, from /proc/self/status."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def peak_of(profiler: Any) -> int:
    """The largest sum of the allocations that the profiler has seen on the CPU."""
    peak = total = 0
    for event in sorted(profiler.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU:
            total += event.nbytes()
            peak = max(peak, total)
    return peak


def main() -> int:
    """The exit code."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--only", choices=SECTIONS, action="append", help="may be repeated")
    p.add_argument("--budget", type=float, default=1.0, help="seconds per line")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--clock", choices=CLOCKS, default="wall", help="what is measured")
    p.add_argument("--json", help="write the numbers to this file")
    args = p.parse_args()
    import torch_openreg  # noqa: F401  (registers the device)

    torch.set_num_threads(args.threads)
    records: list[dict[str, Any]] = []
    runs = {
        "steps": run_steps,
        "operators": run_operators,
        "copies": run_copies,
        "memory": run_memory,
    }
    for section in args.only or SECTIONS:
        runs[section](args, records)
    if args.json:
        path = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), args.json)
        with open(path, "w") as file:
            json.dump(records, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
