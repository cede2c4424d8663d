"""A residual network on images in the manner of the ImageNet example: mp.spawn, SyncBatchNorm.

Written for CUDA and NCCL: test_programs.py runs it on openreg and OCCL with nothing but the names
replaced.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + identity)


class ResNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layers = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 16, 2), BasicBlock(16, 32, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(32, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32, device="cuda")
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()

    @property
    def avg(self):
        return self.sum / self.count


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0) * (100.0 / target.size(0)) for k in topk]


def images(count, seed):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(5, (count,), generator=generator)
    pictures = torch.randn(count, 3, 32, 32, generator=generator)
    pictures += target.view(-1, 1, 1, 1) * torch.linspace(-1, 1, 32)
    return TensorDataset(pictures, target)


def train(loader, model, criterion, optimizer, epoch, device, gpu):
    losses, top1 = AverageMeter("Loss"), AverageMeter("Acc@1")
    model.train()
    start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start_event.record()
    for i, (pictures, target) in enumerate(loader):
        pictures = pictures.to(device, non_blocking=True, memory_format=torch.channels_last)
        target = target.cuda(gpu, non_blocking=True)
        output = model(pictures)
        loss = criterion(output, target)
        acc1, _ = accuracy(output, target, topk=(1, 3))
        losses.update(loss.item(), pictures.size(0))
        top1.update(acc1[0].item() if acc1.dim() else acc1.item(), pictures.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = loss.detach().clone()
        dist.reduce(shown, 0)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} [{i}] loss {shown.item() / dist.get_world_size():.6f}")
    end_event.record()
    torch.cuda.synchronize()
    assert start_event.elapsed_time(end_event) > 0


def validate(loader, model, criterion, device, gpu, args):
    losses, top1 = AverageMeter("Loss"), AverageMeter("Acc@1")

    def run(loader):
        with torch.no_grad():
            for pictures, target in loader:
                pictures, target = pictures.cuda(gpu), target.cuda(gpu)
                output = model(pictures)
                losses.update(criterion(output, target).item(), pictures.size(0))
                top1.update(accuracy(output, target)[0].item(), pictures.size(0))

    model.eval()
    run(loader)
    losses.all_reduce()
    top1.all_reduce()
    seen = len(loader.sampler) * args.world_size
    if seen < len(loader.dataset):
        rest = Subset(loader.dataset, range(seen, len(loader.dataset)))
        run(DataLoader(rest, batch_size=args.batch_size))
    if dist.get_rank() == 0:
        print(f"validation loss {losses.avg:.6f} accuracy {top1.avg:.4f}", flush=True)
    return top1.avg


def main_worker(gpu, args):
    torch.set_num_threads(1)
    dist.init_process_group(
        backend="nccl", init_method=args.dist_url, world_size=args.world_size, rank=gpu
    )
    torch.manual_seed(3)
    torch.cuda.set_device(gpu)
    device = torch.device("cuda", gpu)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(ResNet())
    model = model.to(memory_format=torch.channels_last).cuda(gpu)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[gpu], output_device=gpu)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.1)
    torch.backends.cudnn.benchmark = True

    data, held_out = images(48, seed=1), images(17, seed=2)
    sampler = DistributedSampler(data)
    val_sampler = DistributedSampler(held_out, shuffle=False, drop_last=True)
    size = args.batch_size
    loader = DataLoader(data, size, num_workers=args.workers, pin_memory=True, sampler=sampler)
    val_loader = DataLoader(held_out, size, pin_memory=True, sampler=val_sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        start = time.time()
        train(loader, model, criterion, optimizer, epoch, device, gpu)
        validate(val_loader, model, criterion, device, gpu, args)
        scheduler.step()
        if gpu == 0:
            state = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, args.checkpoint)
            print(f"epoch {epoch} took {time.time() - start:.2f} s", flush=True)
        dist.barrier(device_ids=[gpu])
    checkpoint = torch.load(args.checkpoint, map_location=f"cuda:{gpu}")
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    validate(val_loader, model, criterion, device, gpu, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--dist-url", default=f"file://{os.getcwd()}/rendezvous")
    parser.add_argument("--checkpoint", default="checkpoint.pth.tar")
    arguments = parser.parse_args()
    mp.spawn(main_worker, nprocs=arguments.world_size, args=(arguments,))
