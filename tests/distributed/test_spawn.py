"""A rank of torch.multiprocessing.spawn is killed in a training step; the others train on."""

import datetime
import os
import re
import signal
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch_openreg  # noqa: F401
from torch.nn.parallel import DistributedDataParallel

from tests.distributed import training

RANKS, VICTIM = 3, 2
STEPS_BEFORE, STEPS_AFTER = 2, 3
# Of the whole test: nothing here waits longer.
_DEADLINE_S = 200


def _step(model, optimizer, step, rank):
    optimizer.zero_grad()
    training.loss_of(model, step, rank, "openreg").backward()
    optimizer.step()


def _train_until_told(model, optimizer, rank):
    """Trains in the group of all; returns the parameters before the step that failed."""
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.0001)
    for step in range(STEPS_BEFORE):
        _step(ddp, optimizer, step, rank)
    kept = {name: value.detach().clone() for name, value in model.state_dict().items()}
    torch.openreg.synchronize()
    if rank == VICTIM:
        # Its gradients come from the last block to the first: some have been reduced by then.
        model.blocks[1].up.weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    begin = time.monotonic()
    try:
        _step(ddp, optimizer, STEPS_BEFORE, rank)
        torch.openreg.synchronize()
        raise AssertionError("the step of a group with a dead rank went through")
    except dist.DistBackendError as error:
        print(f"rank {rank} was told after {time.monotonic() - begin:.3f} s: {error}", flush=True)
        told = str(error)
    return told, kept


def run_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "occl",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=60),
        device_id=torch.device("openreg", 0),
    )
    (folder / f"pid{rank}").write_text(str(os.getpid()))
    dist.barrier()
    model = training.net().to("openreg")
    told, kept = _train_until_told(model, training.sgd(model), rank)
    (folder / f"told{rank}").write_text(told)
    group = dist.shrink_group([VICTIM], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    model.load_state_dict(kept)
    ddp = DistributedDataParallel(model, process_group=group)
    optimizer = training.sgd(model)
    for step in range(STEPS_BEFORE, STEPS_BEFORE + STEPS_AFTER):
        _step(ddp, optimizer, step, rank)
    torch.save(model.cpu().state_dict(), folder / f"model{rank}")
    dist.destroy_process_group()


def _reference():
    """What one process on the CPU makes of the batches of those who live in each step."""
    model = training.net()
    optimizer = training.sgd(model)
    for step in range(STEPS_BEFORE + STEPS_AFTER):
        ranks = RANKS if step < STEPS_BEFORE else RANKS - 1
        optimizer.zero_grad()
        for rank in range(ranks):
            (training.loss_of(model, step, rank) / ranks).backward()
        optimizer.step()
    return model


def test_survivors_of_a_kill_train_on(tmp_path):
    # Not joined by spawn's context: that ends all ranks when one has died.
    context = mp.spawn(run_rank, (tmp_path,), RANKS, join=False)
    end = time.monotonic() + _DEADLINE_S
    try:
        for process in context.processes:
            process.join(max(end - time.monotonic(), 0))
        codes = [process.exitcode for process in context.processes]
    finally:
        for process in context.processes:
            process.kill()
            process.join()
    assert codes == [0, 0, -signal.SIGKILL]
    pid = (tmp_path / f"pid{VICTIM}").read_text()
    expected = _reference().state_dict()
    for rank in range(RANKS - 1):
        told = (tmp_path / f"told{rank}").read_text()
        named = (
            rf"OCCL all_reduce #(\d+) on rank {rank} of 3 .*"
            rf"all_reduce #\1 on rank . of communicator .*rank 2 \(pid {pid}\) has died"
        )
        assert re.search(named, told), told
        found = torch.load(tmp_path / f"model{rank}")
        for name, value in expected.items():
            training.same(found[name], value, what=f"{name} on rank {rank}")
