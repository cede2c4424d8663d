"""What a user runs under torchrun: each usage form in turn, with right values.

Imports no module of this project: `import torch` finds the wheel's entry point.
"""

import os
import sys

import torch
import torch.distributed as dist


def check(devices, **options):
    """Initialises, all-reduces on the devices named, checks the sums, and destroys."""
    dist.init_process_group(**options)
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    index = torch.arange(1001, dtype=torch.float32)
    for name in devices:
        tensor = ((rank + 1) * index + rank).to(name)
        dist.all_reduce(tensor)
        torch.openreg.synchronize()
        expected = size * (size + 1) / 2 * index + size * (size - 1) / 2
        assert tensor.device == torch.device(name)
        assert tensor.cpu().equal(expected), (name, tensor)
    dist.destroy_process_group()


check(["openreg:0"], backend="occl")
check(["openreg:0"], device_id=torch.device("openreg:0"))
check(["openreg:0", "cpu"], backend="cpu:gloo,openreg:occl")
print(
    f"rank {os.environ['RANK']}: all forms passed from {sys.modules['torch_openreg'].__file__}",
    flush=True,
)
