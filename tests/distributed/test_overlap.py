"""Communication overlaps with the backward pass, and torch's trace of it shows that.

Rank 1 begins its backward pass when rank 0 has computed most of its own: were the two not to
overlap, rank 0 would wait for rank 1 first, and the operation's deadline would end the test.
"""

import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

WIDTH = 96
DEPTH = 4


class Layer(nn.Module):
    """Tells when its backward pass has come to the middle."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.in_the_middle = None

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        if self.in_the_middle is not None:
            hidden.register_hook(self.in_the_middle)
        return self.second(hidden)


def trace_of(profiled):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") == "kernel"]


def intersect(one, other):
    return one["ts"] < other["ts"] + other["dur"] and other["ts"] < one["ts"] + one["dur"]


class OverlapTest(RankTestCase):
    def net(self):
        torch.manual_seed(3)
        return nn.Sequential(*[Layer() for _ in range(DEPTH)]).to(self.device)

    def step_of_rank_0_ahead(self, wrapped, layer):
        """Rank 0's kernels in the trace of a step, and the gradient of the first weight."""
        store = dist.distributed_c10d._get_default_store()

        def told(gradient):
            if self.rank == 0:
                store.set("the middle of rank 0", "reached")
            return gradient

        x = torch.full((8, WIDTH), 0.1 + self.rank, device=self.device)
        wrapped(x).sum().backward()  # buckets are rebuilt, streams and communicators made
        wrapped.zero_grad()
        torch.openreg.synchronize()
        layer.in_the_middle = told
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
            loss = wrapped(x).sum()
            if self.rank == 1:
                torch.openreg.synchronize()
                store.wait(["the middle of rank 0"])
            loss.backward()
            torch.openreg.synchronize()
        return trace_of(profiled)

    def assert_overlap(self, kernels, collective, at_least):
        if self.rank != 0:
            return
        collectives = [event for event in kernels if event["name"] == collective]
        products = [event for event in kernels if event["name"] == "aten::mm"]
        self.assertEqual(len(products), 4 * DEPTH - 1, [event["name"] for event in kernels])
        streams = [{event["args"]["stream"] for event in some} for some in (collectives, products)]
        self.assertEqual([len(some) for some in streams], [1, 1])
        self.assertNotEqual(*streams)
        first = min(collectives, key=lambda event: event["ts"])
        hidden = [event for event in products if intersect(first, event)]
        self.assertGreaterEqual(len(hidden), at_least)

    def reference(self):
        net = self.net().cpu()
        for rank in range(self.world_size):
            (net(torch.full((8, WIDTH), 0.1 + rank)).sum() / self.world_size).backward()
        return net

    def assert_gradients(self, parameters):
        for found, expected in zip(parameters, self.reference().parameters(), strict=True):
            torch.testing.assert_close(found.cpu(), expected.grad, rtol=1e-4, atol=1e-5)

    def test_ddp(self):
        self.init()
        net = self.net()
        # A bucket for each layer. Rank 1 waits until rank 0 is in the first layer, so the last
        # layer's bucket is on its way while rank 0 computes what lies between.
        wrapped = DistributedDataParallel(net, bucket_cap_mb=0.07)
        kernels = self.step_of_rank_0_ahead(wrapped, net[0])
        self.assert_overlap(kernels, "all_reduce", at_least=4 * (DEPTH - 2))
        count = sum(event["name"] == "all_reduce" for event in kernels)
        self.assertEqual(count, DEPTH, "one interval for each collective")
        self.assert_gradients([parameter.grad for parameter in net.parameters()])
        dist.destroy_process_group()

    def test_fsdp2(self):
        self.init()
        net = self.net()
        for layer in net:
            fully_shard(layer, reshard_after_forward=False)
        fully_shard(net, reshard_after_forward=False)
        # FSDP2 lets one reduce-scatter run at a time beside the computation.
        kernels = self.step_of_rank_0_ahead(net, net[DEPTH - 2])
        self.assert_overlap(kernels, "reduce_scatter", at_least=1)
        self.assert_gradients([parameter.grad.full_tensor() for parameter in net.parameters()])
        dist.destroy_process_group()
