"""What changes how DistributedDataParallel communicates: hooks, precision, averaging, sharding."""

import torch
import torch.distributed as dist
from harness import RankTestCase, fault_of_torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    ddp_zero_hook,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    register_ddp_comm_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.distributed.optim import (
    PostLocalSGDOptimizer,
    ZeroRedundancyOptimizer,
    _apply_optimizer_in_backward,
)
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision
from torch_openreg import _C
from training import adam, batch, loss_of, net, reference, same, same_parameters, sgd, train


class HookTest(RankTestCase):
    own_devices = True

    def ddp(self, **options):
        return DistributedDataParallel(net().to(self.device), **options)

    def check(self, model, tolerance, steps=4, optimizer=None):
        train(model, optimizer or sgd(model), self.device, self.rank, steps)
        same_parameters(model, reference(self.world_size, steps), tolerance)

    def check_kinds(self, hooks):
        for kind, tolerance in hooks.items():
            model = self.ddp(bucket_cap_mb=0.001)
            register_ddp_comm_hook(kind, model, dist.group.WORLD)
            self.check(model, tolerance)

    def test_hooks_of_torch(self):
        self.init()
        hooks = {
            DDPCommHookType.ALLREDUCE: 1e-5,
            DDPCommHookType.FP16_COMPRESS: 0.01,
        }
        self.check_kinds(hooks)
        # torch allows them by the names of the backends that have them.
        for hook in (
            default_hooks.bf16_compress_hook,
            default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook),
        ):
            model = self.ddp()
            model.register_comm_hook(None, hook)
            self.check(model, 0.03)
        for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
            model = self.ddp()
            model._register_builtin_comm_hook(kind)
            self.check(model, 0.01)

    @fault_of_torch("the hooks drop scales that the callbacks' streams still read")
    def test_quantizing_hooks(self):
        self.init()
        hooks = {
            DDPCommHookType.QUANTIZE_PER_TENSOR: 0.05,
            DDPCommHookType.QUANTIZE_PER_CHANNEL: 0.05,
        }
        self.check_kinds(hooks)

    def test_power_sgd(self):
        self.init()
        wrap = default_hooks.fp16_compress_wrapper
        for hook in (powerSGD_hook.powerSGD_hook, wrap(powerSGD_hook.powerSGD_hook)):
            model = self.ddp()
            # Of full rank: exact but for rounding.
            state = powerSGD_hook.PowerSGDState(None, 13, 2, min_compression_rate=0.1)
            model.register_comm_hook(state, hook)
            self.check(model, 0.02)

    def test_averaging_of_models(self):
        self.init()
        model = self.ddp()
        state = post_localSGD_hook.PostLocalSGDState(
            None, subgroup=dist.new_subgroups(1)[0], start_localSGD_iter=2
        )
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        averager = PeriodicModelAverager(period=1, warmup_steps=2)
        self.check(model, 1e-4, optimizer=PostLocalSGDOptimizer(sgd(model), averager))
        parameter = nn.Parameter(torch.full((3,), float(self.rank), device=self.device))
        average_parameters(iter([parameter]), dist.group.WORLD)
        same(parameter, torch.full((3,), (self.world_size - 1) / 2))

    def test_zero_redundancy_optimizers(self):
        self.init()
        for options in ({}, {"parameters_as_bucket_view": True}):
            model = self.ddp()
            optimizer = ZeroRedundancyOptimizer(
                model.parameters(), torch.optim.AdamW, lr=0.01, **options
            )
            train(model, optimizer, self.device, self.rank)
            same_parameters(model, reference(self.world_size, make_optimizer=adam), 1e-4)
            optimizer.consolidate_state_dict(0)
            if self.rank == 0:
                self.assertEqual(len(optimizer.state_dict()["state"]), len([*model.parameters()]))

    @fault_of_torch("the update does not wait for the copies of the parameters into its buckets")
    def test_zero_redundancy_optimizers_in_the_backward_pass(self):
        self.init()
        for hook in (
            ddp_zero_hook.hook_with_zero_step,
            ddp_zero_hook.hook_with_zero_step_interleaved,
        ):
            model = self.ddp(bucket_cap_mb=0.001, gradient_as_bucket_view=True)
            optimizer = ZeroRedundancyOptimizer(
                model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1
            )
            model.register_comm_hook(
                None, hook(default_hooks.allreduce_hook, model, optimizer, shard_buckets=True)
            )
            for step in range(6):  # the first two only show torch the buckets
                loss_of(model, max(step - 2, 0), self.rank, self.device).backward()
                model.zero_grad(set_to_none=False)
            same_parameters(model, reference(self.world_size), 1e-4)

    def test_optimizer_in_the_backward_pass(self):
        self.init()
        module = net().to(self.device)
        _apply_optimizer_in_backward(torch.optim.SGD, module.parameters(), {"lr": 0.1})
        model = DistributedDataParallel(module)
        for step in range(4):
            loss_of(model, step, self.rank, self.device).backward()
        same_parameters(model, reference(self.world_size), 1e-4)

    def check_mixed_precision(self, tolerance, steps=5, **options):
        """The optimizer's writes are still to come when the parameters are converted."""
        model = self.ddp(**options)
        optimizer, stream = sgd(model), torch.openreg.current_stream()
        batches = [[x.to(self.device) for x in batch(step, self.rank)] for step in range(steps)]
        gates = [_C._StreamGate(stream, 60.0)]
        # Runs when all are converted, before anything that the host waits for.
        first = model.module.blocks[0].up
        first.register_forward_pre_hook(lambda *_: gates[-1].open())
        for step, (x, y) in enumerate(batches):
            if step < 3:
                gates[-1].open()  # torch waits for the device when it builds the buckets again
            optimizer.zero_grad(set_to_none=True)
            out = model(x)
            self.assertEqual(out.dtype, options["mixed_precision"].param_dtype)
            nn.functional.mse_loss(out.float(), y).backward()
            gates.append(_C._StreamGate(stream, 60.0))
            optimizer.step()
        gates[-1].open()
        same_parameters(model, reference(self.world_size, steps), tolerance)

    @fault_of_torch("gradients are dropped that the stream of the conversions still reads")
    def test_native_mixed_precision(self):
        self.init()
        for dtype, tolerance in ((torch.float16, 5e-4), (torch.bfloat16, 0.02)):
            for options in (
                {},
                {"gradient_as_bucket_view": True},
                {"bucket_cap_mb": 0.0005},
            ):
                for reduced in (dtype, torch.float32):
                    precision = _MixedPrecision(dtype, reduced, dtype)
                    self.check_mixed_precision(tolerance, mixed_precision=precision, **options)

    def test_compiled_models_and_parameters_that_wait(self):
        self.init()
        model = self.ddp()
        compiled = torch.compile(model, backend="aot_eager")
        train(compiled, sgd(model), self.device, self.rank)
        same_parameters(model, reference(self.world_size))
        module = net().to(self.device)
        model = DistributedDataParallel(
            module,
            device_ids=[self.device.index],
            delay_all_reduce_named_params=[("out.weight", module.out.weight)],
            param_to_hook_all_reduce=module.blocks[0].up.weight,
        )
        self.check(model, 1e-5)
