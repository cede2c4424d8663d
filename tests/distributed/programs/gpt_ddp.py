"""A small GPT under DDP with AMP, gradient accumulation and snapshots, for torchrun.

Written for CUDA and NCCL, as people write them: test_programs.py runs it on openreg and OCCL with
nothing but the names replaced.
"""

import argparse
import contextlib
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

VOCABULARY, BLOCK, WIDTH, HEADS = 48, 16, 32, 4


class CharDataset(Dataset):
    def __init__(self, length=96):
        generator = torch.Generator().manual_seed(1)
        motif = torch.randint(VOCABULARY, (11,), generator=generator)
        self.data = motif.repeat(length // 4 + BLOCK)[: length + BLOCK + 1]

    def __len__(self):
        return len(self.data) - BLOCK - 1

    def __getitem__(self, index):
        chunk = self.data[index : index + BLOCK + 1]
        return chunk[:-1], chunk[1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(BLOCK, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(2))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))
        return logits, loss


class Trainer:
    def __init__(self, args):
        self.args = args
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.device = f"cuda:{self.local_rank}"
        torch.manual_seed(42)
        torch.cuda.manual_seed_all(42)
        data = CharDataset()
        self.loader = DataLoader(
            data,
            batch_size=8,
            pin_memory=True,
            shuffle=False,
            num_workers=args.workers,
            sampler=DistributedSampler(data),
            drop_last=True,
        )
        model = GPT().to(self.device)
        decay = [p for p in model.parameters() if p.dim() >= 2]
        rest = [p for p in model.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
            lr=3e-3,
            betas=(0.9, 0.95),
        )
        self.use_amp = args.dtype != "float32"
        self.scaler = torch.cuda.amp.GradScaler(enabled=args.dtype == "float16", init_scale=1024)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(step, 40) / 40))
        )
        self.epochs_run, self.losses = 0, []
        self.raw_model = model
        if os.path.exists(args.snapshot):
            self.load_snapshot()
        self.model = DDP(model, device_ids=[self.local_rank])

    def load_snapshot(self):
        snapshot = torch.load(self.args.snapshot, map_location=self.device)
        self.raw_model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.scaler.load_state_dict(snapshot["scaler"])
        self.scheduler.load_state_dict(snapshot["scheduler"])
        self.epochs_run = snapshot["epoch"]
        print(f"[rank{self.global_rank}] resuming at epoch {self.epochs_run}", flush=True)

    def save_snapshot(self, epoch):
        snapshot = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "epoch": epoch + 1,
        }
        torch.save(snapshot, self.args.snapshot)

    def run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        accumulate = 2
        for i, (source, targets) in enumerate(self.loader):
            source = source.to(self.device, non_blocking=True)
            targets = targets.to(self.device, non_blocking=True)
            step_now = (i + 1) % accumulate == 0
            self.model.require_backward_grad_sync = step_now
            with torch.amp.autocast(
                device_type="cuda", dtype=getattr(torch, self.args.dtype), enabled=self.use_amp
            ):
                _, loss = self.model(source, targets)
            self.scaler.scale(loss / accumulate).backward()
            if not step_now:
                continue
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.optimizer.zero_grad(set_to_none=True)
            mean = loss.detach().float()
            dist.all_reduce(mean, op=dist.ReduceOp.SUM)
            self.losses.append(mean.item() / dist.get_world_size())
            if self.global_rank == 0:
                memory = torch.cuda.max_memory_allocated() // 1024
                print(f"epoch {epoch} loss {self.losses[-1]:.6f} peak {memory} KB", flush=True)

    def train(self):
        for epoch in range(self.epochs_run, self.args.epochs):
            self.run_epoch(epoch)
            if self.global_rank == 0:
                self.save_snapshot(epoch)
            dist.barrier()
            restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
            if epoch == 0 and restarts == 0 and self.args.fail == self.global_rank:
                raise SystemExit("this rank was asked to fail")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--fail", type=int, default=-1)
    parser.add_argument("--snapshot", default="snapshot.pt")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="nccl")
    with contextlib.ExitStack() as stack:
        stack.callback(dist.destroy_process_group)
        Trainer(args).train()


if __name__ == "__main__":
    main()
