"""Programs written for CUDA and NCCL train on openreg and OCCL with their names replaced.

programs/ holds them. Each is run twice: with "cuda" and "nccl" replaced by "openreg" and "occl",
and by "cpu" and "gloo" (there with CUDA's functions that the CPU lacks), as one rank with the whole
batch where the program can; the losses are equal. Workers are forked from this process, which has
imported torch and used no device.
"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint  # noqa: F401  (so that the workers need not)
import torch.distributed.fsdp
import torch.distributed.tensor.parallel
import torch_openreg  # noqa: F401
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

PROGRAMS = Path(__file__).parent / "programs"
OPENREG = {"cuda": "openreg", "nccl": "occl"}
# What `import torch` does by itself where the wheel is installed.
OPENREG["\nimport torch\n"] = "\nimport torch\nimport torch_openreg\n"
# torch.load knows one CPU.
CPU = {"cuda:{gpu}": "cpu", "cuda": "cpu", "nccl": "gloo"}
# FSDP1 wants it of accelerators only; one rank needs none.
CPU["sync_module_states=True"] = "sync_module_states=False"
CUDA_ONLY = [
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "memory_reserved",
    "memory_summary",
    "reset_peak_memory_stats",
    "set_rng_state",
]


T5 = [
    "",
    "--policy size --strategy SHARD_GRAD_OP --offload",
    "--dtype float16",
]
# DDP fails with any other schedule in torch 2.13, on every backend: its buckets count twice.
PIPELINES = [
    "--schedule 1F1B",
    "--schedule Interleaved1F1B --stages 2 --wrap fsdp2",
    "--schedule GPipe --pipeline 4 --wrap fsdp2",
]


def translated(program: str, names: dict[str, str], folder: Path) -> Path:
    text = (PROGRAMS / program).read_text()
    for old, new in names.items():
        text = text.replace(old, new)
    folder.mkdir(exist_ok=True)
    (folder / program).write_text(text)
    return folder / program


def give_the_cpu_what_cuda_has() -> None:
    """The programs call it through torch.cuda, which has become torch.cpu."""
    os.environ["LOCAL_RANK"] = "0"
    event = mock.MagicMock()
    event.elapsed_time = lambda end: 1.0
    torch.cpu.Event = lambda **options: event
    stream = torch.cpu.Stream
    torch.cpu.Stream = lambda device=None, priority=-1: stream(priority)
    for name in CUDA_ONLY:
        setattr(torch.cpu, name, mock.MagicMock(return_value=0))
    torch.cpu.get_rng_state = lambda device: torch.get_rng_state()
    torch.backends.cpu.matmul = torch.backends.cuda.matmul
    for kind in (torch.Tensor, nn.Module):
        kind.cpu = lambda self, *args, **kwargs: self
    torch.Tensor.record_stream = lambda self, stream: None
    # torch has it for accelerators only; one rank needs none.
    nn.SyncBatchNorm.convert_sync_batchnorm = lambda module: module
    # With device_ids torch takes it for one of the accelerator's.
    barrier = dist.barrier
    dist.barrier = lambda *_, **__: barrier()
    on_devices = nn.parallel.DistributedDataParallel.__init__

    def on_the_cpu(self, module, device_ids=None, output_device=None, **options):
        on_devices(self, module, **options)

    nn.parallel.DistributedDataParallel.__init__ = on_the_cpu


def worker(path: str, arguments: list[str], cpu: bool, log: str) -> None:
    torch.set_num_threads(1)
    os.chdir(os.path.dirname(path))
    rank = os.environ["RANK"]
    if cpu:
        give_the_cpu_what_cuda_has()
    with open(f"{log}.{rank}", "a", buffering=1) as file:
        sys.stdout = sys.stderr = file
        sys.argv = [path, *arguments]
        runpy.run_path(path, run_name="__main__")


def run(program, names, folder, ranks, *arguments, restarts=0) -> str:
    """What rank 0 printed."""
    path = translated(program, names, folder)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=folder.name,
        max_restarts=restarts,
        monitor_interval=0.05,
        start_method="fork",
    )
    log = str(folder / "log")
    try:
        elastic_launch(config, worker)(str(path), list(arguments), names["nccl"] == "gloo", log)
    except BaseException:
        for rank in range(ranks):
            if os.path.exists(f"{log}.{rank}"):
                print(f"--- rank {rank}\n" + Path(f"{log}.{rank}").read_text()[-3000:])
        raise
    return Path(f"{log}.0").read_text()


def losses(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"(?:loss|grad_norm|accuracy) ([0-9.]+)", text)]


def same(found: str, expected: str, count: int, tolerance: float = 1e-4) -> None:
    assert len(losses(expected)) == count, expected
    assert losses(found) == pytest.approx(losses(expected), rel=tolerance, abs=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gpt_with_amp_and_snapshots(tmp_path, dtype):
    options = ["--dtype", dtype, "--epochs", "2", "--workers", "0"]
    expected = run("gpt_ddp.py", CPU, tmp_path / "cpu", 2, *options)
    # On openreg a rank fails after the first epoch, and all begin again from the snapshot.
    found = run("gpt_ddp.py", OPENREG, tmp_path / "openreg", 2, *options, "--fail", "1", restarts=1)
    assert "resuming at epoch 1" in found
    assert "resuming" not in expected
    same(found, expected, 6, 1e-4 if dtype == "float32" else 1e-2)


def test_llama_with_fsdp_and_tensor_parallelism(tmp_path):
    expected = run("llama_fsdp_tp.py", CPU, tmp_path / "cpu", 4)
    same(run("llama_fsdp_tp.py", OPENREG, tmp_path / "openreg", 4), expected, 12)
    mixed = run("llama_fsdp_tp.py", OPENREG, tmp_path / "mixed", 4, "--param-dtype", "bfloat16")
    assert losses(mixed)[::2] == pytest.approx(losses(expected)[::2], rel=0.02)


def test_convnet_with_amp_and_exact_resumption(tmp_path):
    expected = run("convnet_ddp.py", CPU, tmp_path / "cpu", 1, "--batch-size", "16")
    folder = tmp_path / "openreg"
    found = run("convnet_ddp.py", OPENREG, folder, 2, "--epochs", "2", "--compress")
    assert "device: OpenReg" in found
    # The log goes on where it was.
    found = run("convnet_ddp.py", OPENREG, folder, 2, "--epochs", "3")
    assert "resuming at epoch 2" in found
    same(found, expected, 9, 1e-3)
    mixed = run("convnet_ddp.py", OPENREG, tmp_path / "mixed", 2, "--amp")
    assert losses(mixed) == pytest.approx(losses(expected), rel=0.02)


@pytest.mark.parametrize("options", T5)
def test_t5_with_fsdp1(tmp_path, options):
    expected = run("t5_fsdp1.py", CPU, tmp_path / "cpu", 1, "--batch-size", "8")
    found = run("t5_fsdp1.py", OPENREG, tmp_path / "openreg", 2, *options.split())
    same(found, expected, 8, 2e-4 if "float16" not in options else 0.03)


@pytest.mark.parametrize("options", PIPELINES)
def test_pipeline_with_replicas(tmp_path, options):
    expected = run("pipeline_ddp.py", CPU, tmp_path / "cpu", 1, "--pipeline", "1")
    found = run("pipeline_ddp.py", OPENREG, tmp_path / "openreg", 4, *options.split())
    same(found, expected, 5)


def test_resnet_with_synchronised_batch_norm(tmp_path):
    """A program that spawns its ranks, as users' do; their last batches are uneven."""
    # One rank with the whole batch needs no peer, and is not spawned.
    one = {"mp.spawn(": "main_worker(0, arguments) or (lambda *_, **__: None)("}
    whole = ["--world-size", "1", "--batch-size", "16"]
    expected = run("resnet_imagenet.py", CPU | one, tmp_path / "cpu", 1, *whole)
    path = translated("resnet_imagenet.py", OPENREG, tmp_path / "openreg")
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    same(done.stdout, expected, 12)


def test_torchrun_restarts_the_ranks(tmp_path):
    path = translated("gpt_ddp.py", OPENREG, tmp_path)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launch += ["--max-restarts", "1", "--monitor-interval", "0.1"]
    done = subprocess.run(
        [sys.executable, *launch, str(path), "--fail", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        assert f"[rank{rank}] resuming at epoch 1" in done.stdout
    assert len(losses(done.stdout)) == 6, done.stdout
