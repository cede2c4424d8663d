"""The collectives by themselves: what each one does to a small tensor, and overlap with compute.

Run it with two ranks, or with more:

    tools/bazel run //examples:collectives
    torchrun --nproc-per-node 4 examples/collectives.py
"""

from __future__ import annotations

import argparse

import ranks
import torch
import torch.distributed as dist


def show(name: str, tensor: torch.Tensor) -> None:
    """Prints every rank's values, in rank order."""
    values: list[list[float] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(values, tensor.tolist())
    if dist.get_rank() == 0:
        print(f"{name:15s} " + "  ".join(f"rank {r}: {v}" for r, v in enumerate(values)))


def tour(args: argparse.Namespace, device: torch.device) -> None:
    """One rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    own = torch.arange(size, dtype=torch.float32, device=device) + 10 * rank
    show("input", own)

    total = own.clone()
    dist.all_reduce(total)
    show("all_reduce", total)

    root = own.clone()
    dist.broadcast(root, src=0)
    show("broadcast", root)

    gathered = torch.empty(size * size, device=device)
    dist.all_gather_single(gathered, own)
    show("all_gather", gathered)

    part = torch.empty(1, device=device)
    dist.reduce_scatter_single(part, own)
    show("reduce_scatter", part)

    turned = torch.empty(size, device=device)
    dist.all_to_all_single(turned, own)
    show("all_to_all", turned)

    from_left = torch.empty(size, device=device)
    right, left = (rank + 1) % size, (rank - 1) % size
    exchange = [dist.P2POp(dist.isend, own, right), dist.P2POp(dist.irecv, from_left, left)]
    if size > 1:
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        show("send/recv", from_left)

    # Asynchronous: the product is computed while the large sum is under way.
    large, square = torch.ones(1 << 20, device=device), torch.eye(256, device=device)
    work = dist.all_reduce(large, async_op=True)
    product = square @ square
    work.wait()  # the current stream waits, not the host
    assert large.sum().item() == size * large.numel() and product.trace().item() == 256
    dist.barrier()
    if rank == 0:
        print("overlapped an all_reduce of 4 MB with a matrix product")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ranks.add_arguments(parser)
    ranks.run(tour, parser.parse_args())
