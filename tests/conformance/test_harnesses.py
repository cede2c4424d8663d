"""The harnesses that torch ships for the distributed tests of an accelerator, on openreg."""

import torch
import torch.distributed as dist
import torch_openreg  # noqa: F401
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal import common_fsdp
from torch.testing._internal.common_distributed import MultiProcContinuousTest
from torch.testing._internal.distributed._tensor.common_dtensor import (
    DTensorTestBase,
    with_comms,
)

common_fsdp.DEVICE_TYPE = "openreg"
common_fsdp.DISTRIBUTED_BACKEND = "occl"
common_fsdp.DEVICE_COUNT = torch.openreg.device_count()


class ContinuousTest(MultiProcContinuousTest):
    world_size = 2

    @classmethod
    def backend_str(cls):
        return "occl"

    def test_all_reduce(self):
        device = torch.device("openreg", self.rank)
        tensor = torch.full((4,), self.rank + 1.0, device=device)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.cpu(), torch.full((4,), 3.0))

    def test_all_gather(self):
        device = torch.device("openreg", self.rank)
        found = torch.zeros(2, device=device)
        dist.all_gather_single(found, torch.full((1,), float(self.rank), device=device))
        self.assertEqual(found.cpu(), torch.tensor([0.0, 1.0]))


class MeshTest(DTensorTestBase):
    @property
    def world_size(self):
        return 2

    # torch's list of backends that this harness takes has no room for a bare "occl".
    @property
    def backend(self):
        return "cpu:gloo,openreg:occl"

    @with_comms
    def test_redistribute(self):
        mesh = self.build_device_mesh()
        whole = torch.arange(12.0, device=self.device_type).reshape(4, 3)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        self.assertEqual(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)


class ShardedTest(common_fsdp.FSDPTest):
    @property
    def world_size(self):
        return 2

    def test_fully_shard(self):
        torch.openreg.set_device(self.rank)  # the harness does so for CUDA and XPU only
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4).to("openreg")
        expected = model.weight.detach().clone()
        fully_shard(model)
        self.assertEqual(model.weight.full_tensor(), expected)
        model(torch.ones(2, 4, device="openreg")).sum().backward()
        self.assertEqual(model.weight.grad.full_tensor().cpu(), torch.full((4, 4), 2.0))
