"""A convolutional network under DDP with AMP, a prefetcher and exact resumption, for torchrun.

float16 with a GradScaler, gradient accumulation under no_sync, a loader that copies the next batch
on a stream of its own, an average of the weights, checkpoints with random states. Written for CUDA
and NCCL: test_programs.py runs it on openreg and OCCL with nothing but the names replaced.
"""

import argparse
import contextlib
import copy
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def log(*text):
    if dist.get_rank() == 0:
        print(*text, flush=True)


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.deep = nn.Sequential(
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.SiLU(), nn.Conv2d(16, 16, 3, groups=4)
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = F.max_pool2d(F.gelu(self.norm(self.stem(x))), 2)
        return self.head(self.deep(x).mean(dim=(2, 3)))


class Prefetcher:
    """Copies the next batch while the current one is computed."""

    def __init__(self, loader, device):
        self.loader, self.device = iter(loader), device
        self.stream = torch.cuda.Stream(device=device)
        self.mean = torch.tensor([0.1, 0.2, 0.3], device=device).view(1, 3, 1, 1)
        self.preload()

    def preload(self):
        try:
            pictures, target = next(self.loader)
        except StopIteration:
            self.pictures = self.target = None
            return
        with torch.cuda.stream(self.stream):
            self.pictures = pictures.to(self.device, non_blocking=True).float()
            self.target = target.to(self.device, non_blocking=True)
            self.pictures = self.pictures.sub_(self.mean).div_(0.5)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        pictures, target = self.pictures, self.target
        if pictures is not None:
            pictures.record_stream(torch.cuda.current_stream())
            target.record_stream(torch.cuda.current_stream())
        self.preload()
        return pictures, target


def data(count=64):
    generator = torch.Generator().manual_seed(5)
    target = torch.randint(4, (count,), generator=generator)
    pictures = torch.rand(count, 3, 12, 12, generator=generator)
    pictures[:, 1] += target.view(-1, 1, 1) * 0.3
    return TensorDataset(pictures, target)


def train_epoch(args, epoch, model, average, optimizer, scaler, loader, device):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    total = torch.zeros(2, device=device)
    prefetcher = Prefetcher(loader, device)
    pictures, target = prefetcher.next()
    step = 0
    while pictures is not None:
        step += 1
        last = step % args.accumulate == 0
        with contextlib.nullcontext() if last else model.no_sync():
            with torch.cuda.amp.autocast(enabled=args.amp):
                loss = F.cross_entropy(model(pictures), target, label_smoothing=0.1)
            scaler.scale(loss / args.accumulate).backward()
        total += torch.stack([loss.detach(), torch.ones_like(loss)])
        if last:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=2.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            with torch.no_grad():
                for mean, now in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(now, 0.1)
        pictures, target = prefetcher.next()
    end.record()
    torch.cuda.synchronize(device)
    dist.all_reduce(total)
    log(f"epoch {epoch} loss {total[0].item() / total[1].item():.6f}")
    return start.elapsed_time(end)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device="cuda")
    sum_of_losses = torch.zeros((), dtype=torch.double).cuda(device)
    for pictures, target in loader:
        pictures, target = pictures.cuda(non_blocking=True), target.cuda(non_blocking=True)
        output = model(pictures.sub(0.2))
        sum_of_losses += F.cross_entropy(output, target, reduction="sum").double()
        right += output.argmax(1).eq(target).sum()
    dist.reduce(right, dst=0)
    dist.reduce(sum_of_losses, dst=0)
    model.train()
    return right.item() / 64, sum_of_losses.item() / 64


def save(path, **state):
    if dist.get_rank() == 0:
        torch.save(state, path + ".tmp")
        os.replace(path + ".tmp", path)
    dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--compress", action="store_true")
    parser.add_argument("--checkpoint", default="last.pt")
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    assert torch.cuda.is_available() and torch.cuda.device_count() > local_rank
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    assert torch.cuda.current_device() in (local_rank, "cuda")
    torch.backends.cudnn.benchmark = True
    dist.init_process_group("nccl", init_method="env://")
    set_seed(11)
    log("device:", torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    model = Net().cuda(local_rank)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)
    scaler = torch.cuda.amp.GradScaler(enabled=args.amp, init_scale=2.0**10)
    begin = 0
    if os.path.isfile(args.checkpoint):
        place = {"cuda:0": f"cuda:{local_rank}"}
        state = torch.load(args.checkpoint, map_location=place, weights_only=False)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["cpu_random"].cpu())
        torch.cuda.set_rng_state(state["device_random"].cpu(), device)
        begin = state["epoch"]
        log(f"resuming at epoch {begin}")
    model = DistributedDataParallel(
        model, device_ids=[local_rank], output_device=local_rank, gradient_as_bucket_view=True
    )
    if args.compress:
        model.register_comm_hook(dist.group.WORLD, fp16_compress_hook)
    dataset = data()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, pin_memory=True, drop_last=True)
    held_out = DataLoader(dataset, args.batch_size, sampler=DistributedSampler(dataset))
    for epoch in range(begin, args.epochs):
        sampler.set_epoch(epoch)
        torch.cuda.reset_peak_memory_stats(device)
        elapsed_ms = train_epoch(args, epoch, model, average, optimizer, scaler, loader, device)
        scheduler.step()
        accuracy, loss = evaluate(average, held_out, device)
        log(f"validation loss {loss:.6f} accuracy {accuracy:.4f} ({elapsed_ms:.1f} ms)")
        log(f"memory: {torch.cuda.max_memory_allocated(device) / 2**20:.1f} MB")
        save(
            args.checkpoint,
            epoch=epoch + 1,
            model=model.module.state_dict(),
            average=average.state_dict(),
            optimizer=optimizer.state_dict(),
            scheduler=scheduler.state_dict(),
            scaler=scaler.state_dict(),
            cpu_random=torch.get_rng_state(),
            device_random=torch.cuda.get_rng_state(device),
        )
        torch.cuda.empty_cache()
    log(torch.cuda.memory_summary(device, abbreviated=True))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
