"""An encoder-decoder under FullyShardedDataParallel in the manner of the tutorials, for torchrun.

Automatic wrapping by transformer layer, mixed precision, prefetching, activation checkpoints, a
sharded gradient scaler, full state dicts of model and optimizer. Written for CUDA and NCCL:
test_programs.py runs it on openreg and OCCL with nothing but the names replaced.
"""

import argparse
import functools
import os

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

VOCABULARY, DIM = 40, 32


class Reverse(Dataset):
    """Sequences, to be turned round."""

    def __init__(self, count=32, length=8):
        generator = torch.Generator().manual_seed(9)
        self.source = torch.randint(2, VOCABULARY, (count, length), generator=generator)

    def __len__(self):
        return len(self.source)

    def __getitem__(self, index):
        source = self.source[index]
        return {"source": source, "target": torch.cat([source.new_ones(1), source.flip(0)])}


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, DIM)
        kind = {"d_model": DIM, "nhead": 4, "dim_feedforward": 64, "dropout": 0.0}
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(**kind, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(**kind, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(DIM, VOCABULARY)

    def forward(self, source, target):
        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory)
        x = self.embed(target)
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=x.device)
        for layer in self.decoder:
            x = layer(x, memory, tgt_mask=mask.to(x.dtype), tgt_is_causal=True)
        return self.head(x)


def loss_of(model, batch, device):
    source, target = batch["source"].to(device), batch["target"].to(device)
    logits = model(source, target[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), target[:, 1:].flatten())


def train(args, model, device, loader, optimizer, scaler, epoch, sampler):
    model.train()
    ddp_loss = torch.zeros(2).to(device)
    sampler.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        loss = loss_of(model, batch, device)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = model.clip_grad_norm_(1.0)
        scaler.step(optimizer)
        scaler.update()
        ddp_loss[0] += loss.item()
        ddp_loss[1] += 1
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        print(f"epoch {epoch} loss {ddp_loss[0] / ddp_loss[1]:.6f} grad_norm {norm:.5f}")


def save_and_load(args, model, optimizer):
    """Through full state dicts on rank 0, into a model and an optimizer that know nothing yet."""
    policy = fsdp.FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, fsdp.StateDictType.FULL_STATE_DICT, policy):
        state = model.state_dict()
    full = FSDP.full_optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        assert {tensor.device.type for tensor in state.values()} == {"cpu"}
        torch.save({"model": state, "optimizer": full}, "t5.pt")
    dist.barrier()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    loaded = torch.load("t5.pt", map_location="cpu")
    with FSDP.state_dict_type(model, fsdp.StateDictType.FULL_STATE_DICT):
        model.load_state_dict(loaded["model"])
    shard = FSDP.scatter_full_optim_state_dict(
        loaded["optimizer"] if dist.get_rank() == 0 else None, model
    )
    optimizer = make_optimizer(model)
    optimizer.load_state_dict(shard)
    return optimizer


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--policy", default="transformer")
    parser.add_argument("--strategy", default="FULL_SHARD")
    parser.add_argument("--offload", action="store_true")
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(local_rank)
    torch.cuda.manual_seed(0)
    torch.manual_seed(0)
    device = torch.cuda.current_device()
    layers = {nn.TransformerEncoderLayer, nn.TransformerDecoderLayer}
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=layers)
    if args.policy == "size":
        policy = functools.partial(size_based_auto_wrap_policy, min_num_params=5000)
    dtype = getattr(torch, args.dtype)
    model = FSDP(
        Translator(),
        auto_wrap_policy=policy,
        mixed_precision=fsdp.MixedPrecision(dtype, torch.float32, dtype),
        sharding_strategy=fsdp.ShardingStrategy[args.strategy],
        cpu_offload=fsdp.CPUOffload(offload_params=args.offload),
        backward_prefetch=fsdp.BackwardPrefetch.BACKWARD_PRE,
        device_id=torch.cuda.current_device(),
        limit_all_gathers=True,
        use_orig_params=args.policy == "size",
        sync_module_states=True,
    )
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=functools.partial(
            checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT
        ),
        check_fn=lambda module: isinstance(module, nn.TransformerEncoderLayer),
    )
    optimizer = make_optimizer(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.7)
    scaler = ShardedGradScaler(enabled=args.dtype == "float16", init_scale=256)
    data = Reverse()
    sampler = DistributedSampler(data, rank=rank, num_replicas=world_size, shuffle=True)
    loader = DataLoader(data, args.batch_size, sampler=sampler, num_workers=0, pin_memory=True)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for epoch in range(args.epochs):
        train(args, model, device, loader, optimizer, scaler, epoch, sampler)
        scheduler.step()
        if epoch == 1:
            optimizer = save_and_load(args, model, optimizer)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.7)
    end.record()
    dist.barrier()
    end.synchronize()
    if rank == 0:
        print(f"{begin.elapsed_time(end) / 1000:.2f} s, {torch.cuda.memory_reserved()} bytes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
