"""A small Llama under FSDP2 and tensor parallelism in the manner of torchtitan, for torchrun.

A 2-D mesh, sequence parallelism, loss_parallel, activation checkpoints, mixed precision, a meta
device start, and a distributed checkpoint in the middle that is saved and loaded. Written for CUDA
and NCCL: test_programs.py runs it on openreg and OCCL with nothing but the names replaced.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

VOCABULARY, DIM, HEADS, SEQUENCE = 64, 32, 4, 16
HEAD = DIM // HEADS


def rotary(x):
    """Rotary embedding of [batch, sequence, heads, HEAD]."""
    half = HEAD // 2
    steps = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
    rates = 1.0 / 10000 ** (torch.arange(half, device=x.device) / half)
    turn = torch.polar(torch.ones_like(angle := torch.outer(steps, rates)), angle)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], half, 2))
    return torch.view_as_real(pairs * turn.view(1, -1, 1, half)).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, -1, HEAD) for w in (self.wq, self.wk, self.wv))
        q, k = rotary(q), rotary(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).contiguous().view(b, s, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(DIM, 2 * DIM, bias=False) for _ in range(2))
        self.w2 = nn.Linear(2 * DIM, DIM, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleDict({str(i): TransformerBlock() for i in range(2)})
        self.norm = nn.RMSNorm(DIM)
        self.output = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h)
        return self.output(self.norm(h))

    def init_weights(self):
        # Of the index and not of the generator: equal on every device.
        for i, parameter in enumerate(self.parameters()):
            full = torch.arange(parameter.numel()).add(i).mul(0.7).sin().reshape(parameter.shape)
            full = 1 + 0.01 * full if parameter.dim() == 1 else 0.2 * full
            with torch.no_grad():
                if isinstance(parameter, DTensor):
                    full = torch.distributed.tensor.distribute_tensor(
                        full.cuda(), parameter.device_mesh, parameter.placements
                    )
                parameter.copy_(full)


def apply_tp(model, tp_mesh):
    parallelize_module(
        model,
        tp_mesh,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(
                input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
            ),
        },
    )
    gather = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    for block in model.layers.values():
        plan = {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(**gather),
            "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(**gather),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward.w3": ColwiseParallel(),
        }
        parallelize_module(block, tp_mesh, plan)


def apply_fsdp(model, mesh, args):
    policy = MixedPrecisionPolicy(
        param_dtype=getattr(torch, args.param_dtype), reduce_dtype=torch.float32
    )
    for name, block in model.layers.items():
        fully_shard(
            block,
            mesh=mesh,
            mp_policy=policy,
            reshard_after_forward=int(name) < len(model.layers) - 1,
        )
    fully_shard(model, mesh=mesh, mp_policy=policy)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--param-dtype", default="float32")
    parser.add_argument("--checkpoint", default="checkpoint")
    args = parser.parse_args()
    world_size = int(os.environ["WORLD_SIZE"])
    device = torch.device(f"cuda:{int(os.environ['LOCAL_RANK'])}")
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (world_size // args.tp, args.tp), mesh_dim_names=("dp", "tp"))

    with torch.device("meta"):
        model = Transformer()
    apply_tp(model, mesh["tp"])
    for name, block in list(model.layers.items()):
        model.layers[name] = checkpoint_wrapper(block, preserve_rng_state=False)
    apply_fsdp(model, mesh["dp"], args)
    model.to_empty(device="cuda")
    model.init_weights()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=args.param_dtype == "float32")
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, total_iters=3)

    dp_rank, dp_size = mesh["dp"].get_local_rank(), mesh["dp"].size()
    step = 0
    while step < args.steps:
        generator = torch.Generator().manual_seed(step)
        batch = torch.randint(VOCABULARY, (4, SEQUENCE + 1), generator=generator)
        batch = batch.chunk(dp_size)[dp_rank].cuda()
        optimizer.zero_grad()
        with loss_parallel():
            prediction = model(batch[:, :-1])
            loss = F.cross_entropy(prediction.flatten(0, 1).float(), batch[:, 1:].flatten(0, 1))
            del prediction
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        scheduler.step()
        step += 1
        shown = loss.detach()
        shown = (shown.full_tensor() if isinstance(shown, DTensor) else shown).clone()
        dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=mesh["dp"].get_group())
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        if dist.get_rank() == 0:
            print(f"step {step} loss {shown.item():.6f} grad_norm {norm.item():.6f}", flush=True)
        if step == args.steps // 2:
            states = get_state_dict(model, optimizer)
            dcp.save(
                {"model": states[0], "optim": states[1], "step": step},
                checkpoint_id=args.checkpoint,
            )
            model.init_weights()  # lost, and loaded again
            states = get_state_dict(model, optimizer)
            state = {"model": states[0], "optim": states[1], "step": 0}
            dcp.load(state, checkpoint_id=args.checkpoint)
            set_state_dict(
                model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
            )
            assert state["step"] == step
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
