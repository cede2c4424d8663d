"""The examples run, and training gives the same numbers on both devices."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
CPU = ["--device", "cpu", "--backend", "gloo"]
OPENREG = ["--device", "openreg", "--backend", "occl"]
BOTH = pytest.mark.parametrize("where", [CPU, OPENREG], ids=["cpu", "openreg"])


def run(program: str, *args: str) -> str:
    command = [sys.executable, str(FOLDER / program), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train_digits(out: Path, *args: str) -> dict:
    run("train_digits.py", "--out", str(out), *args)
    return json.loads((out / "train_digits.json").read_text())


def test_digits_reach_95_percent_with_a_plot_and_a_trace_of_the_communication(tmp_path):
    numbers = train_digits(tmp_path, *OPENREG)
    assert numbers["device"] == "openreg" and numbers["backend"] == "occl"
    assert numbers["accuracies"][-1] >= 0.95
    assert (tmp_path / "train_digits.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    events = json.loads((tmp_path / "train_digits_trace.json").read_text())["traceEvents"]
    assert any("occl" in e.get("name", "") and "all_reduce" in e["name"] for e in events)


def test_digits_have_the_same_losses_on_both_devices(tmp_path):
    cpu = train_digits(tmp_path / "cpu", *CPU, "--max-steps", "20")
    openreg = train_digits(tmp_path / "openreg", *OPENREG, "--max-steps", "20")
    assert len(cpu["losses"]) == len(openreg["losses"]) == 20
    for a, b in zip(cpu["losses"], openreg["losses"], strict=True):
        assert math.isclose(a, b, rel_tol=1e-4), (cpu["losses"], openreg["losses"])


def test_digits_run_under_torchrun(tmp_path):
    script = [str(FOLDER / "train_digits.py"), *OPENREG, "--max-steps", "3"]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launch, *script, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "train_digits.json").read_text())["world_size"] == 2


def test_a_failing_rank_fails_the_program(tmp_path):
    command = [sys.executable, str(FOLDER / "train_digits.py"), *CPU, "--batch-size", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode != 0
    assert "--batch-size 3 is no multiple of 2 ranks" in done.stdout + done.stderr


@BOTH
def test_fsdp2_learns(where):
    run("train_fsdp2.py", *where)


@BOTH
@pytest.mark.parametrize("world_size", ["1", "2", "3"])
def test_collectives_tour(where, world_size):
    text = run("collectives.py", *where, "--world-size", world_size)
    size = int(world_size)
    total = [float(sum(i + 10 * r for r in range(size))) for i in range(size)]
    assert f"all_reduce      rank 0: {total}" in text
    assert "overlapped" in text
