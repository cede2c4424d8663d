"""The same training step on the CPU with Gloo and on openreg with OCCL, in the same two processes.

Steps of both take turns, so that noise of a shared machine hits them alike; the ratio is the time
on the CPU over the time on openreg, minima (above 1: openreg is faster). One intra-op thread a
rank. After equal numbers of steps from equal weights the losses must be equal, or the run fails.

    tools/bazel run //tools/bench:training
    tools/bazel run //tools/bench:training -- --models linear --wraps ddp --steps 10
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from models import MODELS, Workload
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WRAPS = ("ddp", "fsdp2")
DEVICES = ("cpu", "openreg")


@dataclasses.dataclass
class Side:
    """One device's copy of a workload, and its measurements."""

    device: torch.device
    step: Callable[[], torch.Tensor]
    synchronize: Callable[[], None]
    times: list[float] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)

    def timed_step(self) -> None:
        """One step, to the end of the device's work."""
        start = time.perf_counter()
        loss = self.step()
        self.synchronize()
        self.times.append(time.perf_counter() - start)
        self.losses.append(float(loss))


def wrap(model: nn.Module, how: str, device: str, blocks: list[nn.Module]) -> nn.Module:
    """Data-parallel over all ranks."""
    if how == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def make_side(workload: Workload, how: str, kind: str) -> Side:
    """The workload on one device; the weights and the inputs are the same on both."""
    torch.manual_seed(0)
    index = dist.get_rank() % torch.get_device_module(kind).device_count() if kind != "cpu" else 0
    device = torch.device(kind, index) if kind != "cpu" else torch.device(kind)
    model = copy.deepcopy(workload.model).to(device)
    wrapped = wrap(model, how, kind, workload.blocks(model))
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-2, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    inputs, targets = (t.to(device) for t in workload.batch(generator))

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = workload.loss(wrapped(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    synchronize = (lambda: None) if kind == "cpu" else torch.get_device_module(kind).synchronize
    return Side(device, step, synchronize)


def measure(args: argparse.Namespace, name: str, how: str) -> dict[str, Any]:
    """Both sides of one model, step by step in turn."""
    workload = MODELS[name]()
    sides = [make_side(workload, how, kind) for kind in DEVICES]
    for i in range(args.warmup + args.steps):
        for side in sides if i % 2 == 0 else reversed(sides):
            dist.barrier()
            side.timed_step()
    times = torch.tensor([s.times[args.warmup :] for s in sides], dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)  # a step takes as long as its slowest rank
    losses = torch.tensor([s.losses for s in sides], dtype=torch.float64)
    equal = torch.tensor([torch.allclose(losses[0], losses[1], rtol=args.rtol, atol=1e-6)])
    equal = equal.to(torch.int32)
    dist.all_reduce(equal, dist.ReduceOp.MIN)
    best, median = times.min(dim=1).values, times.median(dim=1).values
    return {
        "model": name,
        "wrap": how,
        "cpu_min_ms": float(best[0]) * 1e3,
        "openreg_min_ms": float(best[1]) * 1e3,
        "ratio_min": float(best[0] / best[1]),
        "ratio_median": float(median[0] / median[1]),
        "losses_equal": bool(equal),
        "last_loss": float(losses[0, -1]),
    }


def row(record: dict[str, Any]) -> str:
    """A line of the table."""
    return (
        f"{record['model']:8s} {record['wrap']:6s} cpu+gloo {record['cpu_min_ms']:8.2f} ms"
        f"  openreg+occl {record['openreg_min_ms']:8.2f} ms  ratio of minima"
        f" {record['ratio_min']:5.2f}, of medians {record['ratio_median']:5.2f}"
        f"  losses {'equal' if record['losses_equal'] else 'DIFFER'}"
    )


def rank_main(rank: int, args: argparse.Namespace, folder: str) -> None:
    """Body of a rank; rank 0 writes {folder}/records.json."""
    import torch_openreg  # noqa: F401  (registers the device and the backend)

    torch.set_num_threads(args.threads)
    dist.init_process_group(
        "cpu:gloo,openreg:occl",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=args.world_size,
        timeout=datetime.timedelta(seconds=120),
    )
    torch.get_device_module("openreg").set_device(
        rank % torch.get_device_module("openreg").device_count()
    )
    records = []
    for name in args.models:
        for how in args.wraps:
            records.append(measure(args, name, how))
            if rank == 0:
                print(row(records[-1]), flush=True)
    if rank == 0:
        with open(f"{folder}/records.json", "w") as file:
            json.dump(records, file)
    dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    p.add_argument("--wraps", default=",".join(WRAPS))
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--threads", type=int, default=1, help="intra-op threads of a rank")
    p.add_argument("--rtol", type=float, default=1e-4, help="of the losses of the two sides")
    p.add_argument("--json", help="write the numbers to this file")
    args = p.parse_args()
    args.models, args.wraps = args.models.split(","), args.wraps.split(",")
    for known, given in ((MODELS, args.models), (WRAPS, args.wraps)):
        for name in given:
            if name not in known:
                p.error(f"{name!r} is none of {', '.join(known)}")
    return args


def main() -> int:
    """The exit code."""
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (args, folder), nprocs=args.world_size)
        with open(f"{folder}/records.json") as file:
            records = json.load(file)
    if args.json:
        path = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), args.json)
        with open(path, "w") as file:
            json.dump(records, file, indent=1)
    return 0 if all(r["losses_equal"] for r in records) else 1


if __name__ == "__main__":
    sys.exit(main())
