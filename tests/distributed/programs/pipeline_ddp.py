"""A language model cut into pipeline stages whose replicas are kept equal by DDP, for torchrun.

A 2-D mesh of data and pipeline ranks, schedules with microbatches, DDP or FSDP2 inside of a stage.
Written for CUDA and NCCL: test_programs.py runs it on openreg and OCCL with nothing but the names
replaced.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as all_schedules
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, DIM, LENGTH, LAYERS = 32, 32, 8, 4


class Part(nn.Module):
    """Some consecutive layers of the model, with its two ends where they belong."""

    def __init__(self, layers, first, last):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, DIM) if first else nn.Identity()
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(DIM, VOCABULARY) if last else nn.Identity()

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def parts(count):
    """The same weights, however many parts there are."""
    torch.manual_seed(4)
    layers = [
        nn.TransformerEncoderLayer(DIM, 2, 48, dropout=0.0, batch_first=True) for _ in range(LAYERS)
    ]
    each = LAYERS // count
    return [Part(layers[i * each : (i + 1) * each], i == 0, i == count - 1) for i in range(count)]


def batches(steps, size):
    generator = torch.Generator().manual_seed(6)
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (size, LENGTH), generator=generator)
        yield tokens, tokens.roll(1, dims=1)


def loss_fn(output, target):
    return F.cross_entropy(output.flatten(0, 1).float(), target.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", default="1F1B")
    parser.add_argument("--pipeline", type=int, default=2)
    parser.add_argument("--stages", type=int, default=1, help="of each pipeline rank")
    parser.add_argument("--wrap", default="ddp")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}")
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    data_size = dist.get_world_size() // args.pipeline
    mesh = init_device_mesh("cuda", (data_size, args.pipeline), mesh_dim_names=("dp", "pp"))
    pp, dp = mesh["pp"], mesh["dp"]
    pp_rank, dp_rank = pp.get_local_rank(), dp.get_local_rank()

    count = args.pipeline * args.stages
    modules = parts(count)
    mine = list(range(pp_rank, count, args.pipeline))
    wrapped = []
    for index in mine:
        module = modules[index].to(device)
        if args.wrap == "ddp":
            module = DDP(module, process_group=dp.get_group())
        else:
            for layer in module.layers:
                fully_shard(layer, mesh=dp, reshard_after_forward=False)
            fully_shard(
                module, mesh=dp, mp_policy=MixedPrecisionPolicy(), reshard_after_forward=False
            )
        wrapped.append(module)
    stages = [
        PipelineStage(module, index, count, device, group=pp.get_group())
        for index, module in zip(mine, wrapped, strict=True)
    ]
    kind = all_schedules.get_schedule_class(args.schedule)
    multi = issubclass(kind, all_schedules.PipelineScheduleMulti)
    schedule = kind(stages if multi else stages[0], n_microbatches=4, loss_fn=loss_fn)
    optimizer = torch.optim.Adam([p for m in wrapped for p in m.parameters()], lr=2e-3)
    is_first, is_last = 0 in mine, count - 1 in mine

    size = 16
    share = slice(dp_rank * size // data_size, (dp_rank + 1) * size // data_size)
    for step, (tokens, target) in enumerate(batches(args.steps, size)):
        optimizer.zero_grad()
        tokens, target, losses = tokens[share].to(device), target[share].to(device), []
        schedule.step(
            *((tokens,) if is_first else ()),
            target=target if is_last else None,
            losses=losses if is_last else None,
        )
        optimizer.step()
        loss = torch.stack(losses).mean().detach() if is_last else torch.zeros((), device=device)
        # The last stage has it, rank 0 prints it.
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item() / data_size:.6f}", flush=True)
    torch.cuda.synchronize()
    dist.barrier(device_ids=[local_rank])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
