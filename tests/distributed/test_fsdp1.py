"""FullyShardedDataParallel (FSDP1) over openreg and OCCL gives what one CPU process gives."""

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.algorithms._comm_hooks import default_hooks
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.distributed.tensor import init_device_mesh
from training import Block, Net, adam, loss_of, net, reference, same, same_parameters, sgd, train


class ShardedTest(RankTestCase):
    own_devices = True
    ranks = 2

    def wrap(self, model=None, **options):
        model = net().to(self.device) if model is None else model
        policy = ModuleWrapPolicy({Block})
        return FSDP(model, auto_wrap_policy=policy, device_id=self.device, **options)

    def parameters_are(self, model, expected, tolerance=1e-5):
        with FSDP.summon_full_params(model):
            same_parameters(model, expected, tolerance)

    def check(self, model=None, tolerance=1e-5, **options):
        model = self.wrap(model, **options)
        train(model, sgd(model), self.device, self.rank)
        self.parameters_are(model, reference(self.ranks), tolerance)
        return model

    def test_strategies(self):
        self.init()
        for original in (False, True):
            for strategy in (
                ShardingStrategy.FULL_SHARD,
                ShardingStrategy.SHARD_GRAD_OP,
                ShardingStrategy.NO_SHARD,
            ):
                self.check(sharding_strategy=strategy, use_orig_params=original)
        for prefetch in (BackwardPrefetch.BACKWARD_POST, None):
            self.check(backward_prefetch=prefetch, forward_prefetch=True)

    def test_mixed_precision(self):
        self.init()
        for precision in (
            MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16),
            MixedPrecision(torch.float16, torch.float32),
        ):
            self.check(tolerance=0.05, mixed_precision=precision, use_orig_params=True)
        model = self.wrap(mixed_precision=MixedPrecision(torch.float16))
        optimizer, scaler = sgd(model), ShardedGradScaler("openreg", init_scale=64.0)
        for step in range(4):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step, self.rank, self.device)).backward()
            scaler.step(optimizer)
            scaler.update()
        self.parameters_are(model, reference(self.ranks), 0.05)

    def test_offload_and_where_parameters_begin(self):
        self.init()
        for original in (False, True):
            self.check(cpu_offload=CPUOffload(True), use_orig_params=original)
        self.check(net(), sync_module_states=True)
        with torch.device("meta"):
            model = Net()

        def fill(module):
            module.to_empty(device=self.device, recurse=False)
            for parameter in module.parameters(recurse=False):
                nn.init.constant_(parameter, 0.5)

        model = self.wrap(model, param_init_fn=fill)
        with FSDP.summon_full_params(model):
            for parameter in model.parameters():
                same(parameter, torch.full(parameter.shape, 0.5))

    def test_state_dicts(self):
        self.init()
        model = self.wrap(use_orig_params=True)
        optimizer = adam(model)
        train(model, optimizer, self.device, self.rank)
        expected = reference(self.ranks, make_optimizer=adam).state_dict()
        with FSDP.state_dict_type(
            model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
            FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
        ):
            weights = model.state_dict()
            self.assertEqual(set(weights), set(expected) if self.rank == 0 else set())
            for name, weight in weights.items():
                self.assertEqual(weight.device.type, "cpu")
                same(weight, expected[name], 1e-4)
        for kind in (StateDictType.FULL_STATE_DICT, StateDictType.SHARDED_STATE_DICT):
            other = self.wrap(use_orig_params=True)
            other_optimizer = adam(other)
            for each in (model, other):
                FSDP.set_state_dict_type(each, kind)
            moments = FSDP.optim_state_dict(model, optimizer)
            other.load_state_dict(model.state_dict())
            other_optimizer.load_state_dict(
                FSDP.optim_state_dict_to_load(other, other_optimizer, moments)
            )
            train(other, other_optimizer, self.device, self.rank, 1, first=4)
            self.parameters_are(other, reference(self.ranks, 5, adam), 1e-4)

    def test_the_rest_of_its_interface(self):
        self.init()
        model, plain = self.wrap(), net()
        with model.no_sync():
            loss_of(model, 0, self.rank, self.device).backward()
        loss_of(model, 1, self.rank, self.device).backward()
        for step in range(2):
            for rank in range(self.ranks):
                (loss_of(plain, step, rank) / self.ranks).backward()
        same(model.clip_grad_norm_(0.1), nn.utils.clip_grad_norm_(plain.parameters(), 0.1))
        checkpointed = net()
        apply_activation_checkpointing(
            checkpointed, check_fn=lambda module: isinstance(module, Block)
        )
        self.check(checkpointed.to(self.device), use_orig_params=True)
        model = FSDP(net().to(self.device), device_id=self.device)
        state = default_hooks.LowPrecisionState(dist.group.WORLD, parameter_type=torch.float32)
        model.register_comm_hook(state, default_hooks.bf16_compress_hook)
        train(model, sgd(model), self.device, self.rank)
        self.parameters_are(model, reference(self.ranks), 0.03)
        model = self.wrap(use_orig_params=True)
        _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
        for step in range(4):
            loss_of(model, step, self.rank, self.device).backward()
        self.parameters_are(model, reference(self.ranks), 1e-4)


class HybridTest(ShardedTest):
    ranks = 4

    def test_hybrid_strategies(self):
        self.init()
        mesh = init_device_mesh("openreg", (2, 2), mesh_dim_names=("replicate", "shard"))
        for strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
            self.check(sharding_strategy=strategy, device_mesh=mesh, use_orig_params=True)
