"""FSDP, DTensor, tensor parallel, pipelines, functional collectives, checkpoints."""

import copy
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as dcp
from harness import RankTestCase
from torch import nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import (
    DTensor,
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


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))


def net():
    torch.manual_seed(11)
    return Mlp()


def batch(step, rank):
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)


def reference(ranks, steps=3):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(ranks):
            x, y = batch(step, rank)
            (nn.functional.mse_loss(model(x), y) / ranks).backward()
        optimizer.step()
    return model


class ShardingTest(RankTestCase):
    def train(self, model, steps=3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            x, y = (tensor.to(self.device) for tensor in batch(step, self.rank))
            nn.functional.mse_loss(model(x).float(), y).backward()
            optimizer.step()

    def same(self, found, expected, tolerance=1e-5):
        torch.testing.assert_close(
            found.detach().cpu(), expected.detach(), rtol=tolerance, atol=tolerance
        )

    def shard(self, model, **options):
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, **options)
        return fully_shard(model, **options)

    def test_fully_shard(self):
        self.init()
        expected = dict(reference(2).named_parameters())
        for options in ({}, {"reshard_after_forward": False}):
            model = self.shard(net().to(self.device), **options)
            self.train(model)
            for name, parameter in model.named_parameters():
                self.same(parameter.full_tensor(), expected[name])

    def test_fully_shard_with_mixed_precision_and_offload(self):
        self.init()
        expected = dict(reference(2).named_parameters())
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = self.shard(net().to(self.device), mp_policy=policy)
        self.train(model)
        for name, parameter in model.named_parameters():
            self.same(parameter.full_tensor(), expected[name], tolerance=0.05)
        model = self.shard(net().to(self.device), offload_policy=CPUOffloadPolicy(pin_memory=False))
        self.train(model)
        for name, parameter in model.named_parameters():
            self.same(parameter.to(self.device).full_tensor(), expected[name])

    def test_fully_shard_of_a_model_on_the_host(self):
        # fully_shard moves it itself, by assigning Parameter.data.
        self.init()
        expected = dict(reference(2).named_parameters())
        for options in (
            {},
            {"offload_policy": CPUOffloadPolicy()},
            {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
        ):
            model = self.shard(net(), **options)
            self.train(model)
            for name, parameter in model.named_parameters():
                self.assertEqual(parameter.device.type, "cpu" if options else "openreg")
                self.same(parameter.to(self.device).full_tensor(), expected[name])

    def test_fully_shard_with_a_divide_factor(self):
        self.init()
        expected = dict(reference(2).named_parameters())
        model = self.shard(net().to(self.device))
        for module in model.modules():
            if hasattr(module, "set_gradient_divide_factor"):
                module.set_gradient_divide_factor(2.0)
        self.train(model)
        for name, parameter in model.named_parameters():
            self.same(parameter.full_tensor(), expected[name])

    def test_fsdp1(self):
        self.init()
        model = FullyShardedDataParallel(net().to(self.device), device_id=self.device)
        self.train(model)
        with FullyShardedDataParallel.summon_full_params(model):
            expected = dict(reference(2).named_parameters())
            for name, parameter in model.named_parameters():
                self.same(parameter, expected[name.removeprefix("_fsdp_wrapped_module.")])

    def test_dtensor_redistributions(self):
        self.init()
        mesh = init_device_mesh("openreg", (2,))
        whole = torch.arange(24.0).reshape(6, 4)
        placements = [Shard(0), Shard(1), Replicate()]
        for source in placements:
            for target in placements:
                tensor = distribute_tensor(whole.to(self.device), mesh, [source])
                self.same(tensor.redistribute(mesh, [target]).full_tensor(), whole)
        partial = DTensor.from_local(whole.to(self.device), mesh, [Partial()])
        for target in placements:
            self.same(partial.redistribute(mesh, [target]).full_tensor(), 2 * whole)

    def test_tensor_parallel(self):
        self.init()
        mesh = init_device_mesh("openreg", (2,))
        torch.manual_seed(5)
        plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        model = parallelize_module(
            copy.deepcopy(plain).to(self.device),
            mesh,
            {"0": ColwiseParallel(), "2": RowwiseParallel()},
        )
        x = torch.ones(3, 8)
        self.same(model(x.to(self.device)), plain(x))

    def test_pipeline(self):
        self.init()
        whole = net()
        parts = [nn.Sequential(*list(whole)[:2]), nn.Sequential(*list(whole)[2:])]
        stage = PipelineStage(
            copy.deepcopy(parts[self.rank]).to(self.device), self.rank, 2, self.device
        )
        losses = []
        schedule = ScheduleGPipe(stage, 3, loss_fn=nn.functional.mse_loss)
        x, y = batch(0, 0)
        if self.rank == 0:
            schedule.step(x.to(self.device))
        else:
            schedule.step(target=y.to(self.device), losses=losses)
            expected = [
                nn.functional.mse_loss(whole(a), b)
                for a, b in zip(x.chunk(3), y.chunk(3), strict=True)
            ]
            self.same(torch.stack(losses), torch.stack(expected))

    def test_functional_collectives(self):
        self.init()
        group = dist.group.WORLD
        tensor = torch.full((4,), self.rank + 1.0, device=self.device)
        self.same(funcol.all_reduce(tensor, "sum", group), torch.full((4,), 3.0))
        gathered = funcol.all_gather_tensor(tensor, 0, group)
        self.same(gathered, torch.tensor([1.0] * 4 + [2.0] * 4))
        self.same(funcol.reduce_scatter_tensor(tensor, "sum", 0, group), torch.full((2,), 3.0))
        self.same(funcol.all_reduce_coalesced([tensor], "sum", group)[0], torch.full((4,), 3.0))
        swapped = funcol.all_to_all_single(tensor, [2, 2], [2, 2], group)
        self.same(swapped, torch.tensor([1.0, 1.0, 2.0, 2.0]))

        @torch.compile(backend="aot_eager")
        def compiled(x):
            return funcol.all_reduce(x, "sum", group) * 2

        self.same(compiled(tensor), torch.full((4,), 6.0))

    def test_checkpoint(self):
        self.init("cpu:gloo,openreg:occl")
        names = [tempfile.mkdtemp()] if self.rank == 0 else [None]
        dist.broadcast_object_list(names, src=0)
        model = self.shard(net().to(self.device))
        self.train(model)
        expected = {name: p.full_tensor().cpu() for name, p in model.named_parameters()}
        dcp.save({"model": model.state_dict()}, checkpoint_id=names[0])
        fresh = self.shard(Mlp().to(self.device))
        state = {"model": fresh.state_dict()}
        dcp.load(state, checkpoint_id=names[0])
        fresh.load_state_dict(state["model"])
        for name, parameter in fresh.named_parameters():
            self.same(parameter.full_tensor(), expected[name])
        dcp.async_save({"model": model.state_dict()}, checkpoint_id=names[0] + "-async").result()
