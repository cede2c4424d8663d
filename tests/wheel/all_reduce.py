"""What a user runs under torchrun: each usage form in turn, with right values. Imports no project
module but torch_openreg.
"""

import os

import torch
import torch.distributed as dist
import torch_openreg  # noqa: F401  (registers the device and the backend)


def check(**options):
    """Initialises, all-reduces, checks the sum, and destroys."""
    dist.init_process_group(**options)
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((1000,), rank + 1.0, device="openreg:0")
    dist.all_reduce(tensor)
    torch.openreg.synchronize()
    assert tensor.cpu().eq(size * (size + 1) / 2).all(), tensor
    dist.destroy_process_group()


check(backend="occl")
check(device_id=torch.device("openreg:0"))
check(backend="cpu:gloo,openreg:occl")
print(f"rank {os.environ['RANK']}: all forms passed from {torch_openreg.__file__}", flush=True)
