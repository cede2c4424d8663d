"""The models that the benchmarks train."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclasses.dataclass
class Workload:
    """A model on the CPU, its data, its loss, and what FSDP shards one by one."""

    model: nn.Module
    batch: Callable[[torch.Generator], Batch]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    blocks: Callable[[nn.Module], list[nn.Module]]


def _squared_error(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().mean()


def _token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def _layers(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if isinstance(m, nn.Linear)]


def linear(depth: int = 8, width: int = 2048, batch: int = 4) -> Workload:
    """Little computation, many parameters: bound by communication."""
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))

    def data(g: torch.Generator) -> Batch:
        return torch.randn(batch, width, generator=g), torch.randn(batch, width, generator=g)

    return Workload(model, data, _squared_error, _layers)


def mlp(batch: int = 256) -> Workload:
    """512-1024-1024-10 with ReLU."""
    model = nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )

    def data(g: torch.Generator) -> Batch:
        return torch.randn(batch, 512, generator=g), torch.randint(10, (batch,), generator=g)

    return Workload(model, data, _token_loss, _layers)


class GptBlock(nn.Module):
    """Pre-norm causal attention and a feed-forward layer."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] to the same shape."""
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Embeddings, blocks, a head."""

    def __init__(self, vocabulary: int, length: int, width: int, depth: int, heads: int):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[batch, length] to the logits [batch, length, vocabulary]."""
        x = self.embed(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        # A tensor of its own: FSDP2 hooks the output, which must not be a view.
        return self.head(x).clone()


def gpt(depth: int = 4, width: int = 256, batch: int = 4, length: int = 128) -> Workload:
    """A small GPT."""
    vocabulary = 1024
    model = Gpt(vocabulary, length, width, depth, heads=4)

    def data(g: torch.Generator) -> Batch:
        tokens = torch.randint(vocabulary, (batch, length + 1), generator=g)
        return tokens[:, :-1], tokens[:, 1:]

    return Workload(model, data, _token_loss, lambda m: list(m.blocks))  # type: ignore[arg-type]


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, and the input added."""

    def __init__(self, channels: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, channels, height, width] to the same shape."""
        return nn.functional.relu(x + self.body(x))


def resnet(batch: int = 16, channels: int = 32) -> Workload:
    """Three residual blocks on 32x32 images."""
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        *(ResidualBlock(channels) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 10),
    )

    def data(g: torch.Generator) -> Batch:
        images = torch.randn(batch, 3, 32, 32, generator=g)
        return images, torch.randint(10, (batch,), generator=g)

    return Workload(
        model, data, _token_loss, lambda m: [b for b in m if isinstance(b, ResidualBlock)]
    )


MODELS: dict[str, Callable[[], Workload]] = {"linear": linear, "gpt": gpt, "mlp": mlp}
