"""The harnesses that torch ships for the distributed tests of an accelerator, on one backend and
device (pair.py): MultiProcContinuousTest, DTensorTestBase, DTensorContinuousTestBase, FSDPTest,
FSDPTestContinuous. Every test compares values."""

import copy

import pair
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal import common_fsdp
from torch.testing._internal.common_distributed import MultiProcContinuousTest
from torch.testing._internal.distributed._tensor import common_dtensor

common_fsdp.DEVICE_TYPE = pair.DEVICE
common_fsdp.DISTRIBUTED_BACKEND = pair.BACKEND
common_fsdp.DEVICE_COUNT = pair.RANKS
common_dtensor.DEVICE_TYPE = pair.DEVICE
pair.start_ranks_quickly()


def numbers(rank, count):
    """Whole numbers that differ by rank and index."""
    return torch.arange(count, dtype=torch.float32) % 11 + rank + 1


class QuickStart:
    """Ranks of MultiProcessTestCase are forked from the server too."""

    @property
    def world_size(self):
        return pair.RANKS

    def _spawn_processes(self):
        self._start_processes(mp.get_context("forkserver").Process)


class ContinuousTest(MultiProcContinuousTest):
    world_size = pair.RANKS

    @classmethod
    def backend_str(cls):
        return pair.BACKEND

    @classmethod
    def device_type(cls):
        return pair.DEVICE

    @property
    def device(self):
        return torch.device(pair.DEVICE, self.rank)

    def setUp(self):
        super().setUp()
        if self.rank != self.MAIN_PROCESS_RANK:
            torch.accelerator.set_device_index(self.rank)

    def test_reductions(self):
        ranks = range(self.world_size)
        for count in (1, 7, 4099):
            for op, expected in (
                (dist.ReduceOp.SUM, sum(numbers(r, count) for r in ranks)),
                (dist.ReduceOp.MAX, numbers(self.world_size - 1, count)),
                (dist.ReduceOp.AVG, sum(numbers(r, count) for r in ranks) / self.world_size),
            ):
                tensor = numbers(self.rank, count).to(self.device)
                dist.all_reduce(tensor, op=op)
                self.assertEqual(tensor.cpu(), expected)
            mine = torch.empty(count, device=self.device)
            whole = numbers(self.rank, count * self.world_size).to(self.device)
            dist.reduce_scatter_tensor(mine, whole)
            expected = sum(numbers(r, count * self.world_size) for r in ranks)
            self.assertEqual(mine.cpu(), expected.chunk(self.world_size)[self.rank])

    def test_gathering(self):
        for count in (1, 5, 1000):
            found = torch.empty(count * self.world_size, device=self.device)
            dist.all_gather_into_tensor(found, numbers(self.rank, count).to(self.device))
            expected = [numbers(r, count) for r in range(self.world_size)]
            self.assertEqual(found.cpu(), torch.cat(expected))
            rows = numbers(self.rank, count * self.world_size).to(self.device)
            dist.all_to_all_single(found, rows)
            parts = [
                numbers(r, count * self.world_size).chunk(self.world_size)[self.rank]
                for r in range(self.world_size)
            ]
            self.assertEqual(found.cpu(), torch.cat(parts))

    def test_messages_around_a_ring(self):
        found = torch.empty(333, device=self.device)
        ops = [
            dist.P2POp(
                dist.isend,
                numbers(self.rank, 333).to(self.device),
                (self.rank + 1) % self.world_size,
            ),
            dist.P2POp(dist.irecv, found, (self.rank - 1) % self.world_size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        self.assertEqual(found.cpu(), numbers((self.rank - 1) % self.world_size, 333))

    def test_subgroups(self):
        group, _ = dist.new_subgroups(2)
        tensor = torch.full((3,), self.rank + 1.0, device=self.device)
        dist.all_reduce(tensor, group=group)
        first = self.rank // 2 * 2
        self.assertEqual(tensor.cpu(), torch.full((3,), 2.0 * first + 3))


class MeshTest(QuickStart, common_dtensor.DTensorTestBase):
    # torch's list of backends that this harness takes has no room for a bare third-party name.
    @property
    def backend(self):
        return f"cpu:gloo,{pair.DEVICE}:{pair.BACKEND}"

    @common_dtensor.with_comms
    def test_redistributions(self):
        mesh = self.build_device_mesh()
        whole = torch.arange(16.0 * self.world_size).reshape(4 * self.world_size, 4)
        whole = whole.to(self.device_type)
        placements = [Replicate(), Shard(0), Shard(1)]
        for source in placements:
            for target in placements:
                found = distribute_tensor(whole, mesh, [source]).redistribute(mesh, [target])
                self.assertEqual(found.placements, (target,))
                self.assertEqual(found.full_tensor(), whole)
        mine = numbers(self.rank, 4 * self.world_size).to(self.device_type)
        total = sum(numbers(r, 4 * self.world_size) for r in range(self.world_size))
        partial = torch.distributed.tensor.DTensor.from_local(mine, mesh, [Partial()])
        for target in (Replicate(), Shard(0)):
            self.assertEqual(partial.redistribute(mesh, [target]).full_tensor().cpu(), total)

    @common_dtensor.with_comms
    def test_tensor_parallel_mlp(self):
        mesh = self.build_device_mesh()
        torch.manual_seed(3)
        model = common_dtensor.MLPModule(self.device_type)
        sharded = parallelize_module(
            copy.deepcopy(model), mesh, {"net1": ColwiseParallel(), "net2": RowwiseParallel()}
        )
        batch = numbers(0, 40).reshape(4, 10).to(self.device_type)
        for each in (model, sharded):
            each(batch).sum().backward()
        self.assertEqual(sharded(batch), model(batch))
        self.assertEqual(sharded.net1.weight.grad.full_tensor(), model.net1.weight.grad)


class ContinuousMeshTest(common_dtensor.DTensorContinuousTestBase):
    world_size = pair.RANKS

    def test_two_dimensions(self):
        if self.world_size % 2:
            self.skipTest("a mesh of two rows")
        mesh = init_device_mesh(pair.DEVICE, (2, self.world_size // 2), mesh_dim_names=("a", "b"))
        whole = torch.arange(float(4 * self.world_size**2), device=pair.DEVICE).reshape(
            2 * self.world_size, 2 * self.world_size
        )
        placed = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        self.assertEqual((placed @ placed.t()).full_tensor(), whole @ whole.t())
        self.assertEqual(placed.redistribute(mesh, [Shard(1), Shard(0)]).full_tensor(), whole)


class ShardedTest(QuickStart, common_fsdp.FSDPTest):
    def test_fully_shard(self):
        torch.accelerator.set_device_index(self.rank)  # the harness does so for CUDA and XPU only
        torch.manual_seed(0)
        model = common_fsdp.MLPStack(8, with_seq_parallel=False).to(pair.DEVICE)
        reference = copy.deepcopy(model)
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, reference)]
        for step in range(3):
            batches = [(numbers(r + step, 16) / 8).reshape(2, 8) for r in range(self.world_size)]
            model(batches[self.rank].to(pair.DEVICE)).sum().backward()
            for batch in batches:
                (reference(batch.to(pair.DEVICE)).sum() / self.world_size).backward()
            common_fsdp.check_sharded_parity(self, reference, model)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()


class FlatParameterTest(common_fsdp.FSDPTestContinuous):
    world_size = pair.RANKS

    def test_parity_with_ddp(self):
        torch.accelerator.set_device_index(self.rank)
        self._test_fsdp_parity(
            common_fsdp.NestedWrappedModule,
            common_fsdp.FSDPInitMode.RECURSIVE,
            device_init_mode=common_fsdp.DEVICEInitMode.DEVICE_BEFORE,
            sharding_strategy=torch.distributed.fsdp.ShardingStrategy.FULL_SHARD,
        )
