"""Programs written for CUDA and NCCL train on openreg and OCCL with their names replaced.

programs/ holds them. Each is run twice: with "cuda" and "nccl" replaced by "openreg" and "occl",
and by "cpu" and "gloo" (there with CUDA's functions that the CPU lacks); the losses are equal.
Workers are forked from this process, which has imported torch and used no device.
"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
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
CPU = {"cuda": "cpu", "nccl": "gloo"}


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
    torch.cpu.manual_seed_all = lambda seed: None
    torch.cpu.max_memory_allocated = lambda: 0
    torch.backends.cpu.matmul = torch.backends.cuda.matmul
    for kind in (torch.Tensor, nn.Module):
        kind.cpu = lambda self, *args, **kwargs: self
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
        elastic_launch(config, worker)(str(path), list(arguments), names is CPU, log)
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
