"""fully_shard (FSDP2) over openreg and OCCL gives what one process on the CPU gives."""

import copy

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch import nn
from torch.distributed._composable import checkpoint
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import Shard, init_device_mesh
from training import (
    Net,
    adam,
    batch,
    loss_of,
    net,
    reference,
    same,
    same_parameters,
    sgd,
    train,
)


def shard(model, **options):
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def sharded_modules(model):
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


class FullyShardTest(RankTestCase):
    own_devices = True
    ranks = 2

    def check(self, model=None, tolerance=1e-5, set_up=lambda model: None, **options):
        model = shard(net().to(self.device) if model is None else model, **options)
        set_up(model)
        train(model, sgd(model), self.device, self.rank)
        same_parameters(model, reference(self.ranks), tolerance, self.device)

    def gradients(self, model, divisor, tolerance=1e-5):
        """One backward pass; the gradients are the sum over the ranks over `divisor`."""
        loss_of(model, 0, self.rank, self.device).backward()
        plain = net()
        for rank in range(self.ranks):
            (loss_of(plain, 0, rank) / divisor).backward()
        same(model.out.weight.grad, plain.out.weight.grad, tolerance)
        same(model.blocks[0].up.bias.grad, plain.blocks[0].up.bias.grad, tolerance)

    def test_resharding_and_prefetching(self):
        self.init()
        self.check()
        self.check(reshard_after_forward=False)

        def prefetch(model):
            for first, second in zip(model.blocks, list(model.blocks)[1:], strict=False):
                first.set_modules_to_forward_prefetch([second])
                second.set_modules_to_backward_prefetch([first])

        self.check(set_up=prefetch)
        self.check(shard_placement_fn=lambda p: Shard(p.ndim - 1) if p.shape[-1] == 8 else None)

    def test_mixed_precision(self):
        self.init()
        for policy in (
            MixedPrecisionPolicy(torch.bfloat16, torch.float32),
            MixedPrecisionPolicy(torch.float16),
            MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16),
        ):
            self.check(tolerance=0.05, mp_policy=policy)
        scaler = torch.amp.GradScaler("openreg", init_scale=64.0)
        model = shard(net().to(self.device), mp_policy=MixedPrecisionPolicy(torch.float16))
        optimizer = sgd(model)
        for step in range(4):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step, self.rank, self.device)).backward()
            scaler.step(optimizer)
            scaler.update()
        same_parameters(model, reference(self.ranks), 0.05)

    def test_offload_and_parameters_that_begin_on_the_cpu(self):
        self.init()
        mesh = init_device_mesh("openreg", (self.ranks,))
        self.check(net(), mesh=mesh)
        for pinned in (True, False):
            policy = CPUOffloadPolicy(pin_memory=pinned)
            self.check(offload_policy=policy)
            self.check(net(), mesh=mesh, offload_policy=policy)

    def test_gradient_reductions(self):
        self.init()
        for precision in (torch.float32, torch.bfloat16, torch.float16):
            for factor in (1.0, 3.0):
                policy = MixedPrecisionPolicy(torch.float32, precision)
                model = shard(net().to(self.device), mp_policy=policy)
                for module in sharded_modules(model):
                    module.set_gradient_divide_factor(factor)
                tolerance = 1e-5 if precision == torch.float32 else 0.02
                self.gradients(model, factor, tolerance)
        model = shard(net().to(self.device))
        for module in sharded_modules(model):
            module.set_force_sum_reduction_for_comms(True)
        self.gradients(model, self.ranks)

    def test_accumulation_without_synchronisation_and_clipping(self):
        self.init()
        model, plain = shard(net().to(self.device)), net()
        for step in range(3):
            model.set_requires_gradient_sync(step == 2)
            model.set_is_last_backward(step == 2)
            loss_of(model, step, self.rank, self.device).backward()
            for rank in range(self.ranks):
                (loss_of(plain, step, rank) / self.ranks).backward()
        for kind in (1.0, float("inf")):
            found, expected = (
                nn.utils.get_total_norm([p.grad for p in m.parameters()], kind)
                for m in (model, plain)
            )
            same(found, expected, 1e-4)
        for foreach in (True, False):
            norms = [
                nn.utils.clip_grad_norm_(m.parameters(), 0.05, foreach=foreach)
                for m in (model, plain)
            ]
            same(*norms)
            same(model.out.weight.grad, plain.out.weight.grad)

    def test_from_the_meta_device_and_full_state_dicts(self):
        self.init()
        with torch.device("meta"):
            model = Net()
        shard(model, mesh=init_device_mesh("openreg", (self.ranks,)))
        model.to_empty(device=self.device)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        weights = net().state_dict() if self.rank == 0 else {}
        set_model_state_dict(model, weights, options=options)
        optimizer = adam(model)
        train(model, optimizer, self.device, self.rank)
        expected = reference(self.ranks, make_optimizer=adam)
        same_parameters(model, expected, 1e-4)
        gather = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(model, options=gather)
        self.assertEqual(set(weights), set(expected.state_dict()) if self.rank == 0 else set())
        for name, value in weights.items():
            same(value, expected.state_dict()[name], 1e-4)
        moments = get_optimizer_state_dict(model, optimizer, options=gather)
        optimizer.zero_grad()  # torch makes no state where there are gradients
        other = adam(model)
        set_optimizer_state_dict(model, other, moments, options=options)
        for parameter in model.parameters():
            same(other.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"], 0)

    def test_activation_checkpoints_fused_optimizers_and_compiled_blocks(self):
        self.init()
        model = net().to(self.device)
        for block in model.blocks:
            checkpoint(block)
        self.check(model)
        for options in ({"foreach": True}, {"foreach": False}, {"fused": True}):
            model = shard(net().to(self.device))
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
            train(model, optimizer, self.device, self.rank)
            same_parameters(model, reference(self.ranks, make_optimizer=adam), 1e-4)
        model = net().to(self.device)
        for block in model.blocks:
            block.compile(backend="aot_eager")
        self.check(model)

    def test_the_rest_of_its_interface(self):
        self.init()
        model = shard(net().to(self.device))
        model.unshard(async_op=True).wait()
        same(model.out.weight, net().out.weight)
        model.reshard()
        register_fsdp_forward_method(model, "half")
        with torch.no_grad():
            same(model(torch.ones(2, 8, device=self.device)), net()(torch.ones(2, 8)))
        frozen = net().to(self.device)
        for parameter in frozen.blocks[0].parameters():
            parameter.requires_grad_(False)
        shard(frozen)
        loss_of(frozen, 0, self.rank, self.device).backward()
        self.assertIsNone(frozen.blocks[0].up.weight.grad)
        tied = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10, bias=False))
        tied[1].weight = tied[0].weight
        plain = copy.deepcopy(tied)
        fully_shard(tied.to(self.device))
        index = torch.arange(5)
        tied(index.to(self.device)).square().mean().backward()
        plain(index).square().mean().backward()
        same(tied[0].weight.grad, plain[0].weight.grad)

    def test_memory_stays_the_same_from_step_to_step(self):
        self.init()
        model = shard(net().to(self.device))
        optimizer = sgd(model)

        def allocated_after(steps):
            train(model, optimizer, self.device, self.rank, steps)
            dist.barrier()
            torch.openreg.synchronize()
            return torch.openreg.memory_allocated()

        first = allocated_after(2)
        self.assertLessEqual(allocated_after(5), first)


class HybridShardTest(FullyShardTest):
    """Replicas of shards: a mesh of two dimensions, four ranks."""

    ranks = 4

    def test_hybrid(self):
        self.init()
        mesh = init_device_mesh("openreg", (2, 2), mesh_dim_names=("replicate", "shard"))
        self.check(mesh=mesh)
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        self.check(mesh=mesh, mp_policy=policy, tolerance=0.05)
        self.check(reshard_after_forward=2)
        model, plain = shard(net().to(self.device), mesh=mesh), net()
        for step in range(2):
            model.set_requires_all_reduce(step == 1)
            model.set_is_last_backward(step == 1)
            loss_of(model, step, self.rank, self.device).backward()
            for rank in range(self.ranks):
                (loss_of(plain, step, rank) / self.ranks).backward()
        same(model.out.weight.grad, plain.out.weight.grad)
        x, _ = batch(0, self.rank)
        self.assertEqual(model(x.to(self.device)).shape, (6, 4))
