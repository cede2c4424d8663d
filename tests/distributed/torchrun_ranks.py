"""What test_torchrun.py starts under torchrun: each argument is a behaviour."""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch_openreg  # noqa: F401

LONG = datetime.timedelta(seconds=60)


def reduce_for_ever():
    """All-reduces until it is interrupted."""
    tensor = torch.ones(1000, device="openreg")
    dist.all_reduce(tensor)
    torch.openreg.synchronize()
    print("begun", flush=True)
    while True:
        dist.all_reduce(tensor, async_op=True).wait(LONG)
        tensor.fill_(1.0)


def wait_for_ever():
    """All ranks but the last wait for it; it sleeps."""
    tensor = torch.ones(1000, device="openreg")
    dist.all_reduce(tensor)
    torch.openreg.synchronize()
    print("begun", flush=True)
    if dist.get_rank() == dist.get_world_size() - 1:
        time.sleep(300)
    dist.all_reduce(tensor, async_op=True).wait(datetime.timedelta(seconds=300))


def join_for_ever():
    """The first rank, the leader, waits for another one that does not come to the group."""
    print("begun", flush=True)
    if dist.get_rank() != 0:
        time.sleep(300)
    dist.barrier()


def train_on_after_a_death():
    """The last rank dies in training; the others shrink the group and go on."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 4).to("openreg")
    inputs = (torch.arange(16 * 8).reshape(16, 8).float() / 100 + rank).to("openreg")

    def step(group, members):
        model.zero_grad()
        model(inputs).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group, async_op=True).wait(LONG)
            with torch.no_grad():
                parameter -= 0.01 * parameter.grad / members
        return float(model(inputs).square().mean())

    before = [step(None, size) for _ in range(3)]
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        while True:
            step(None, size)
    except dist.DistBackendError as error:
        # In one write, though torchrun's ranks do not buffer: not mixed with another rank's line.
        sys.stdout.write(f"rank {rank} noticed after {time.monotonic() - begin:.3f} s: {error}\n")
    group = dist.shrink_group([size - 1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    after = [step(group, size - 1) for _ in range(3)]
    assert after[-1] < after[0] < before[0], (before, after)
    weights = [torch.empty_like(model.weight) for _ in range(size - 1)]
    dist.all_gather(weights, model.weight.detach(), group=group)
    assert all(torch.equal(weights[0].cpu(), other.cpu()) for other in weights)
    print(f"rank {rank} trained on", flush=True)


def come_back():
    """Rank 1 dies in an operation, then before its first one; the third attempt is left alone."""
    rank, size = dist.get_rank(), dist.get_world_size()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if attempt == 1 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    groups = [dist.group.WORLD, dist.new_group()]
    for group in groups:
        tensor = torch.arange(1000, device="openreg") * (attempt + 1) + rank
        dist.all_reduce(tensor, group=group)
        ranks = size * (size - 1) // 2
        assert tensor.tolist() == [i * (attempt + 1) * size + ranks for i in range(1000)]
        if attempt == 0 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"rank {rank} is through in attempt {attempt}", flush=True)


def main():
    if sys.argv[1] == "come_back" and os.environ["RANK"] == "1":
        time.sleep(0.5)  # the others look for it where the rank that has died was
    dist.init_process_group(
        "occl",
        device_id=torch.device("openreg", 0) if sys.argv[1] == "train_on_after_a_death" else None,
    )
    globals()[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
