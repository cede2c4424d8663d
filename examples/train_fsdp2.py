"""Trains a small transformer with FSDP2: each rank holds a shard of every parameter.

The task is synthetic: predict each token of a repeating sequence from the ones before it.

    tools/bazel run //examples:train_fsdp2
    torchrun --nproc-per-node 2 examples/train_fsdp2.py
"""

from __future__ import annotations

import argparse
import sys

import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

VOCABULARY, WIDTH, LENGTH = 32, 64, 24


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, WIDTH] to the same shape."""
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.feed(self.norm2(x))


class Transformer(nn.Module):
    """Two blocks between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """The mean loss of predicting each token of [batch, LENGTH + 1] from those before it."""
        x = self.embed(sequences[:, :-1]) + self.position
        for block in self.blocks:
            x = block(x)
        logits = self.head(x).flatten(0, 1)
        return nn.functional.cross_entropy(logits, sequences[:, 1:].flatten())


def make_batch(generator: torch.Generator, size: int) -> torch.Tensor:
    """Sequences [size, LENGTH + 1] that repeat a random pattern of 4 tokens."""
    pattern = torch.randint(VOCABULARY, (size, 4), generator=generator)
    return pattern.repeat(1, LENGTH // 4 + 1)[:, : LENGTH + 1]


def train(args: argparse.Namespace, device: torch.device) -> None:
    """One rank."""
    torch.manual_seed(args.seed)
    model = Transformer().to(device)
    for block in model.blocks:
        fully_shard(block)  # gathered before its forward and backward, freed after
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(args.seed * 1000 + dist.get_rank())
    first = last = 0.0
    for step in range(args.steps):
        loss = model(make_batch(generator, 16).to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0 or step == args.steps - 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            last = mean.item() / dist.get_world_size()
            first = first or last
            if dist.get_rank() == 0:
                print(f"step {step:3d}: loss {last:.4f}", flush=True)
    if last > 0.7 * first:
        sys.exit(f"the loss fell only from {first:.4f} to {last:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ranks.add_arguments(parser)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    ranks.run(train, parser.parse_args())
