"""Functional collectives, eager and under torch.compile, their gradients, and coalescing."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from harness import RankTestCase
from torch.distributed.nn import functional as differentiable
from training import same


class FunctionalTest(RankTestCase):
    own_devices = True
    ranks = 4

    def inputs(self):
        return [torch.arange(4.0 * self.ranks) + rank for rank in range(self.ranks)]

    def check(self, compiled):
        n, rank, group = self.ranks, self.rank, dist.group.WORLD

        def call(function, *arguments):
            if compiled:
                function = torch.compile(function, backend="aot_eager", fullgraph=True)
            return function(*arguments)

        every = self.inputs()
        total = sum(every)
        x = every[rank].to(self.device)
        square = x.reshape(4, n)
        for op, expected in {
            "sum": total,
            "avg": total / n,
            "max": every[-1],
            "min": every[0],
        }.items():
            same(call(lambda t, op=op: funcol.all_reduce(t, op, group) * 2, x), expected * 2)
        same(call(lambda t: funcol.broadcast(t, n - 1, group) + 0, x), every[-1])
        for dim in (0, 1):
            gathered = call(lambda t, d=dim: funcol.all_gather_tensor(t, d, group) + 0, square)
            same(gathered, torch.cat([one.reshape(4, n) for one in every], dim))
            part = call(
                lambda t, d=dim: funcol.reduce_scatter_tensor(t, "sum", d, group) + 0, square
            )
            same(part, total.reshape(4, n).chunk(n, dim)[rank])
        turned = call(lambda t: funcol.all_to_all_single(t, None, None, group) + 0, x)
        same(turned, torch.cat([one.chunk(n)[rank] for one in every]))

        sizes = [[(sender + receiver) % 3 for receiver in range(n)] for sender in range(n)]
        rows = [torch.arange(float(sum(sizes[k]))) + 10 * k for k in range(n)]
        uneven = call(
            lambda t: funcol.all_to_all_single(t, sizes[rank], sizes[rank], group) + 0,
            rows[rank].to(self.device),
        )
        same(uneven, torch.cat([rows[k].split(sizes[k])[rank] for k in range(n)]))

        first, second = call(
            lambda a, b: [t + 0 for t in funcol.all_reduce_coalesced([a, b], "sum", group)],
            x,
            square,
        )
        same(first, total)
        same(second, total.reshape(4, n))
        first, _ = call(
            lambda a, b: [t + 0 for t in funcol.all_gather_into_tensor_coalesced([a, b], group)],
            x,
            square,
        )
        same(first, torch.cat(every))
        right = [(k + 1) % n for k in range(n)]
        same(call(lambda t: funcol.permute_tensor(t, right, group) + 0, x), every[rank - 1])

    def test_values(self):
        self.init()
        self.check(compiled=False)

    def test_values_of_compiled_functions(self):
        self.init()
        self.check(compiled=True)

    def test_gradients(self):
        self.init()
        n, rank, group = self.ranks, self.rank, dist.group.WORLD
        weight = rank + 1
        x = self.inputs()[rank].to(self.device).requires_grad_()

        def gradient(out):
            x.grad = None
            (out * weight).sum().backward()
            return x.grad

        everyone = float(sum(range(1, n + 1)))
        by_rank = torch.arange(1.0, n + 1).repeat_interleave(4)
        same(
            gradient(funcol.all_gather_tensor_autograd(x, 0, group)), torch.full((4 * n,), everyone)
        )
        same(gradient(funcol.reduce_scatter_tensor_autograd(x, "sum", 0, group)), by_rank)
        same(gradient(funcol.all_to_all_single_autograd(x, None, None, group)), by_rank)
        same(gradient(differentiable.all_reduce(x)), torch.full((4 * n,), everyone))
        at_root = everyone if rank == 0 else 0.0
        same(gradient(differentiable.broadcast(x, 0)), torch.full((4 * n,), at_root))

    def test_coalescing(self):
        self.init()
        n = self.ranks
        tensors = [torch.full((k + 1,), float(self.rank), device=self.device) for k in range(4)]
        with dist._coalescing_manager(device=self.device, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for tensor in tensors:
            same(tensor, torch.full(tensor.shape, n * (n - 1) / 2))
        gathered = [torch.zeros(2 * n, device=self.device) for _ in range(3)]
        with dist._coalescing_manager(device=self.device):
            for tensor in gathered:
                mine = torch.full((2,), float(self.rank), device=self.device)
                dist.all_gather_into_tensor(tensor, mine)
        parts = [torch.zeros(2, device=self.device) for _ in range(3)]
        with dist._coalescing_manager(device=self.device):
            for tensor in parts:
                dist.reduce_scatter_tensor(tensor, torch.arange(2.0 * n, device=self.device))
        for tensor in gathered:
            same(tensor, torch.arange(float(n)).repeat_interleave(2))
        for tensor in parts:
            same(tensor, torch.arange(2.0 * n).chunk(n)[self.rank] * n)
