"""DistributedDataParallel over openreg and OCCL gives what one process on the CPU gives."""

import copy

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 16)
        self.unused = nn.Linear(4, 4)
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class DdpTest(RankTestCase):
    steps = 4

    def net(self):
        torch.manual_seed(7)
        return Net()

    def batch(self, step, rank):
        generator = torch.Generator().manual_seed(100 * step + rank)
        return torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)

    def reference(self, optimizer=None, **hyper):
        """One process that sees the batches of all ranks."""
        net = self.net()
        optimizer = (optimizer or torch.optim.SGD)(net.parameters(), **(hyper or {"lr": 0.1}))
        for step in range(self.steps):
            optimizer.zero_grad()
            for rank in range(self.world_size):
                x, y = self.batch(step, rank)
                (nn.functional.mse_loss(net(x), y) / self.world_size).backward()
            optimizer.step()
        return net

    def train(self, hook=None, make_optimizer=None, **options):
        options.setdefault("find_unused_parameters", True)
        net = DistributedDataParallel(self.net().to(self.device), **options)
        if hook is not None:
            net.register_comm_hook(None, hook)
        make_optimizer = make_optimizer or (lambda params: torch.optim.SGD(params, lr=0.1))
        optimizer = make_optimizer(net.parameters())
        for step in range(self.steps):
            optimizer.zero_grad()
            x, y = (tensor.to(self.device) for tensor in self.batch(step, self.rank))
            nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
        return net.module

    def same(self, found, expected, tolerance=1e-5):
        for (name, mine), theirs in zip(
            found.named_parameters(), expected.parameters(), strict=True
        ):
            torch.testing.assert_close(
                mine.detach().cpu(), theirs.detach(), rtol=tolerance, atol=tolerance, msg=name
            )

    def test_training(self):
        self.init()
        expected = self.reference()
        for options in (
            {},
            {"bucket_cap_mb": 0.0005},
            {"gradient_as_bucket_view": True},
            {"device_ids": [0]},
        ):
            self.same(self.train(**options), expected)

    def test_static_graph(self):
        self.init()
        net = self.net()
        del net.unused
        expected = self.reference()
        del expected.unused
        self.net, plain = lambda: copy.deepcopy(net), self.net
        self.same(self.train(find_unused_parameters=False, static_graph=True), expected)
        self.net = plain

    def test_communication_hooks(self):
        self.init()
        expected = self.reference()
        self.same(self.train(hook=default_hooks.allreduce_hook), expected)
        self.same(self.train(hook=default_hooks.fp16_compress_hook), expected, tolerance=0.02)

        def python_hook(state, bucket):
            tensor = bucket.buffer() / dist.get_world_size()
            return (
                dist.all_reduce(tensor, async_op=True)
                .get_future()
                .then(lambda future: future.value()[0])
            )

        self.same(self.train(hook=python_hook), expected)

    def test_no_sync_accumulates(self):
        self.init()
        net = DistributedDataParallel(self.net().to(self.device), find_unused_parameters=True)
        plain = self.net()
        for step in range(2):
            for rank in range(self.world_size):
                x, y = self.batch(step, rank)
                (nn.functional.mse_loss(plain(x), y) / self.world_size).backward()
        x, y = (tensor.to(self.device) for tensor in self.batch(0, self.rank))
        with net.no_sync():
            nn.functional.mse_loss(net(x), y).backward()
        x, y = (tensor.to(self.device) for tensor in self.batch(1, self.rank))
        nn.functional.mse_loss(net(x), y).backward()
        torch.testing.assert_close(
            net.module.last.weight.grad.cpu(), plain.last.weight.grad, rtol=1e-5, atol=1e-5
        )

    def test_join_with_uneven_inputs(self):
        """A rank that has run out of inputs counts as zeros, or not at all."""
        self.init()
        steps = 2 + self.rank
        for divide_by_all in (True, False):
            net = DistributedDataParallel(self.net().to(self.device), find_unused_parameters=True)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            with net.join(divide_by_initial_world_size=divide_by_all):
                for step in range(steps):
                    optimizer.zero_grad()
                    x, y = (tensor.to(self.device) for tensor in self.batch(step, self.rank))
                    nn.functional.mse_loss(net(x), y).backward()
                    optimizer.step()
            plain = self.net()
            optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
            for step in range(2 + self.world_size - 1):
                optimizer.zero_grad()
                active = [rank for rank in range(self.world_size) if step < 2 + rank]
                for rank in active:
                    x, y = self.batch(step, rank)
                    divisor = self.world_size if divide_by_all else len(active)
                    (nn.functional.mse_loss(plain(x), y) / divisor).backward()
                optimizer.step()
            self.same(net.module, plain)
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)
        with Join([net, optimizer]):
            for step in range(steps):
                x, y = (tensor.to(self.device) for tensor in self.batch(step, self.rank))
                nn.functional.mse_loss(net(x), y).backward()
                optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "exhausted"):  # noqa: SIM117
            with net.join(throw_on_early_termination=True):
                for step in range(steps):
                    x, _ = self.batch(step, self.rank)
                    net(x.to(self.device)).sum().backward()

    def test_zero_redundancy_optimizer(self):
        self.init()
        expected = self.reference(torch.optim.Adam, lr=0.01)
        found = self.train(
            make_optimizer=lambda params: ZeroRedundancyOptimizer(
                params, optimizer_class=torch.optim.Adam, lr=0.01
            )
        )
        self.same(found, expected, tolerance=1e-4)

    def test_logging_data_has_times(self):
        self.init()
        net = DistributedDataParallel(nn.Linear(4, 4).to(self.device))
        net._set_ddp_runtime_logging_sample_rate(1)
        for _ in range(2):
            net(torch.ones(2, 4, device=self.device)).sum().backward()
        data = net._get_ddp_logging_data()
        self.assertEqual(data["backend_name"], "custom")
        self.assertGreaterEqual(data["avg_backward_comm_time"], 1)
        self.assertGreaterEqual(data["avg_forward_compute_time"], 1)

    def test_sync_batch_norm(self):
        self.init()
        torch.manual_seed(3)
        plain = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
        net = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain)).to(self.device)
        net = DistributedDataParallel(net)
        inputs = [torch.randn(4, 2, 6, 6) for _ in range(self.world_size)]
        dist.broadcast_object_list(inputs, src=0)
        out = net(inputs[self.rank].to(self.device))
        whole = plain(torch.cat(inputs))
        torch.testing.assert_close(
            out.detach().cpu(),
            whole.detach().chunk(self.world_size)[self.rank],
            rtol=1e-4,
            atol=1e-4,
        )
        out.square().mean().backward()
        whole.square().mean().backward()
        torch.testing.assert_close(
            net.module[1].weight.grad.cpu(), plain[1].weight.grad, rtol=1e-4, atol=1e-4
        )


class MixedBackendDdpTest(RankTestCase):
    def test_a_group_with_gloo_and_occl(self):
        self.init("cpu:gloo,openreg:occl")
        net = DistributedDataParallel(nn.Linear(3, 3).to(self.device))
        net(torch.ones(2, 3, device=self.device)).sum().backward()
        objects = [None, None]
        dist.all_gather_object(objects, self.rank)
        self.assertEqual(objects, [0, 1])
