"""Starts the ranks of an example, or joins those that torchrun has started."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --world-size, --device and --backend."""
    parser.add_argument(
        "--world-size",
        type=int,
        default=2,
        help="ranks to start; under torchrun its own number counts (default: %(default)s)",
    )
    parser.add_argument("--device", default="openreg", help="openreg or cpu (default: %(default)s)")
    parser.add_argument("--backend", help="occl or gloo (default: the one of the device)")


def output_folder(out: str | None) -> str:
    """The folder to write to: `out`, or where the user called from (also under `bazel run`)."""
    folder = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", os.getcwd()), out or "")
    os.makedirs(folder, exist_ok=True)
    return folder


def _set_up(args: argparse.Namespace, init_method: str, rank: int, world_size: int) -> torch.device:
    if args.device == "openreg":
        import torch_openreg  # noqa: F401  (registers the device and the backend)
    # The ranks share the cores of this machine.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world_size))
    if args.device == "cpu":
        device = torch.device("cpu")
    else:
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
        index = local_rank % torch.get_device_module(args.device).device_count()
        device = torch.device(args.device, index)
        torch.get_device_module(args.device).set_device(device)
    backend = args.backend or ("gloo" if args.device == "cpu" else "occl")
    dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=world_size)
    return device


def _rank_main(
    rank: int,
    body: Callable[[argparse.Namespace, torch.device], None],
    args: argparse.Namespace,
    init_method: str,
    world_size: int,
) -> None:
    device = _set_up(args, init_method, rank, world_size)
    try:
        body(args, device)
    finally:
        dist.destroy_process_group()


def run(body: Callable[[argparse.Namespace, torch.device], None], args: argparse.Namespace) -> None:
    """Calls body(args, device) on every rank, with the default process group initialised.

    `body` is a function of the main module. A rank that fails ends the others and this process.
    """
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:  # torchrun
        _rank_main(int(os.environ["RANK"]), body, args, "env://", int(os.environ["WORLD_SIZE"]))
        return
    with tempfile.TemporaryDirectory() as folder:
        init_method = f"file://{folder}/rendezvous"
        arguments = (body, args, init_method, args.world_size)
        try:
            mp.spawn(_rank_main, arguments, nprocs=args.world_size)
        except KeyboardInterrupt:
            sys.exit(130)
