"""Trains a small convolutional network on handwritten digits, data-parallel over the ranks.

The data are scikit-learn's digits: 1,797 images of 8x8 pixels, which come inside the package. Every
fifth image is held out. Each rank takes its slice of every batch, DistributedDataParallel averages
the gradients. The same seed gives the same losses on every device, up to rounding.

Written to the output folder: train_digits.png (loss and accuracy), train_digits_trace.json (a
Chrome trace of some steps of rank 0, for chrome://tracing or Perfetto), train_digits.json (the
numbers).

    tools/bazel run //examples:train_digits
    tools/bazel run //examples:train_digits -- --world-size 4 --epochs 20
    tools/bazel run //examples:train_digits -- --device cpu --backend gloo
    torchrun --nproc-per-node 2 examples/train_digits.py
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

HELD_OUT_EVERY = 5
PROFILED_STEPS = range(5, 10)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ranks.add_arguments(parser)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step, all ranks")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-steps", type=int, help="stop after so many steps")
    parser.add_argument("--min-accuracy", type=float, default=0.95, help="fail below this")
    parser.add_argument("--out", help="folder for the files (default: the current one)")
    return parser.parse_args()


def load_digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images [n, 1, 8, 8] in 0..1, their labels [n], held-out images and labels."""
    from sklearn.datasets import load_digits as load

    data = load()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target, dtype=torch.int64)
    held_out = torch.arange(len(labels)) % HELD_OUT_EVERY == 0
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def make_model() -> nn.Module:
    """[batch, 1, 8, 8] to the logits [batch, 10]; about 38,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class Trainer:
    """One rank's model, data and records."""

    def __init__(self, args: argparse.Namespace, device: torch.device):
        self.args = args
        self.device = device
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        if args.batch_size % self.world_size != 0:
            sys.exit(f"--batch-size {args.batch_size} is no multiple of {self.world_size} ranks")
        torch.manual_seed(args.seed)  # the same initial weights on all ranks and devices
        self.model = DistributedDataParallel(make_model().to(device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        train_x, train_y, test_x, test_y = load_digits()
        self.train = (train_x.to(device), train_y.to(device))
        # Each rank judges its share of the held-out images.
        self.test = (
            test_x[self.rank :: self.world_size].to(device),
            test_y[self.rank :: self.world_size].to(device),
        )
        self.steps_per_epoch = len(train_y) // args.batch_size
        self.losses: list[float] = []  # per step, the mean over the ranks
        self.accuracies: list[float] = []  # per epoch
        self.profiler: profile | None = None

    def batches(self, epoch: int) -> list[torch.Tensor]:
        """Which images each batch of this rank has: one shuffle for all ranks, then a slice."""
        generator = torch.Generator().manual_seed(self.args.seed * 1000 + epoch)
        order = torch.randperm(len(self.train[1]), generator=generator)
        whole = order[: self.steps_per_epoch * self.args.batch_size].view(self.steps_per_epoch, -1)
        return list(whole[:, self.rank :: self.world_size].to(self.device))

    def step(self, indices: torch.Tensor) -> torch.Tensor:
        """Forward, backward, update; this rank's loss."""
        images, labels = self.train
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.model(images[indices]), labels[indices])
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def profile_step(self, step: int) -> None:
        """Starts and ends the recording around PROFILED_STEPS, on rank 0."""
        if self.rank != 0:
            return
        if step == PROFILED_STEPS.start:
            self.profiler = profile(activities=[ProfilerActivity.CPU])
            self.profiler.start()
        elif step == PROFILED_STEPS.stop and self.profiler is not None:
            self.profiler.stop()

    def run_epoch(self, epoch: int, bar: tqdm) -> None:
        """Trains on every batch once and notes the losses."""
        self.model.train()
        losses = []
        for indices in self.batches(epoch):
            done = len(self.losses) + len(losses)
            if self.args.max_steps is not None and done >= self.args.max_steps:
                break
            self.profile_step(done)
            losses.append(self.step(indices))
            bar.update()
        if losses:
            mean = torch.stack(losses)
            dist.all_reduce(mean)
            self.losses += (mean / self.world_size).tolist()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Of all held-out images, over all ranks."""
        self.model.eval()
        images, labels = self.test
        right = (self.model(images).argmax(dim=1) == labels).sum()
        counts = torch.stack([right, torch.full_like(right, len(labels))])
        dist.all_reduce(counts)
        right_of_all, of_all = counts.tolist()
        return right_of_all / of_all


def plot(trainer: Trainer, path: str) -> None:
    """Writes the curves as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    left.plot(trainer.losses, linewidth=1)
    left.set(xlabel="step", ylabel="training loss", yscale="log")
    right.plot(range(1, len(trainer.accuracies) + 1), trainer.accuracies, marker="o")
    right.axhline(trainer.args.min_accuracy, linestyle="--", color="gray")
    right.set(xlabel="epoch", ylabel="held-out accuracy")
    figure.suptitle(
        f"Digits, {trainer.world_size} ranks, {trainer.device.type}, {dist.get_backend()}"
    )
    figure.savefig(path, dpi=120)


def save(trainer: Trainer) -> list[str]:
    """Writes the files; returns their paths."""
    stem = os.path.join(ranks.output_folder(trainer.args.out), "train_digits")
    plot(trainer, stem + ".png")
    numbers = {
        "device": trainer.device.type,
        "backend": dist.get_backend(),
        "world_size": trainer.world_size,
        "losses": trainer.losses,
        "accuracies": trainer.accuracies,
    }
    with open(stem + ".json", "w") as file:
        json.dump(numbers, file, indent=1)
    paths = [stem + ".png", stem + ".json"]
    if trainer.profiler is not None:
        trainer.profiler.export_chrome_trace(stem + "_trace.json")
        paths.append(stem + "_trace.json")
    return paths


def train(args: argparse.Namespace, device: torch.device) -> None:
    """One rank."""
    start = time.monotonic()
    trainer = Trainer(args, device)
    first = trainer.rank == 0
    total = args.epochs * trainer.steps_per_epoch
    if args.max_steps is not None:
        total = min(total, args.max_steps)
    with tqdm(total=total, unit="step", disable=not first) as bar:
        for epoch in range(args.epochs):
            trainer.run_epoch(epoch, bar)
            trainer.accuracies.append(trainer.accuracy())
            if first:
                loss = sum(trainer.losses[-trainer.steps_per_epoch :]) / trainer.steps_per_epoch
                bar.write(
                    f"epoch {epoch + 1:2d}/{args.epochs}: loss {loss:.4f}, "
                    f"held-out accuracy {trainer.accuracies[-1]:.2%}"
                )
            if len(trainer.losses) >= total:
                break
    accuracy = trainer.accuracies[-1]
    if first:
        print(f"held-out accuracy {accuracy:.2%} after {time.monotonic() - start:.1f} s")
        for path in save(trainer):
            print(f"wrote {path}")
    if accuracy < args.min_accuracy and args.max_steps is None:
        sys.exit(f"held-out accuracy {accuracy:.2%} is below {args.min_accuracy:.0%}")


if __name__ == "__main__":
    ranks.run(train, parse_arguments())
