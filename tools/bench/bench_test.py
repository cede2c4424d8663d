"""The benchmarks run, check their results, and say so when something is missed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
OCCL = "occl,import=torch_openreg,device=openreg"
FAST = ["--budget", "0.02", "--min-batches", "3", "--sizes", "8,4K"]


def program(name: str, *args: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(FOLDER / name), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def collectives(*args: str) -> subprocess.CompletedProcess:
    return program("collectives.py", *FAST, *args)


def test_collectives_compares_checks_and_plots(tmp_path):
    out, png = tmp_path / "out.json", tmp_path / "out.png"
    args = ["-c", "gloo", "-c", OCCL, "--ranks", "2", "--check", "--json", str(out)]
    done = collectives(*args, "--plot", str(png))
    assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads(out.read_text())["results"]
    measured = {(r["label"], r["op"], r["bytes"]) for r in records if "min_us" in r}
    ops = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "sendrecv"]
    for op in ops:
        for size in (8, 4096):
            assert {(label, op, size) for label in ("gloo", "occl", "limit")} <= measured
    assert ("occl", "barrier", 0) in measured
    assert all(r["min_us"] > 0 for r in records)
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("options", [["--refresh"], ["--inflight", "4"], ["--rotate", "2"]])
def test_collectives_modes(options):
    args = ["-c", "gloo", "-c", OCCL, "--ranks", "2", "--ops", "all_reduce", *options]
    done = collectives(*args)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ratio min" in done.stdout


def test_collectives_fails_when_a_bar_is_missed_or_not_measured(tmp_path):
    bars = tmp_path / "bars.json"
    args = ["-c", "gloo", "-c", "gloo,label=again", "--ranks", "2", "--ops", "barrier"]
    for bar, word in (({"min_ratio": 1e9}, "MISSED"), ({"op": "reduce"}, "not measured")):
        bars.write_text(json.dumps([{"min_ratio": 0, **bar}]))
        done = collectives(*args, "--bars", str(bars))
        assert done.returncode == 1 and word in done.stdout, done.stdout + done.stderr
    bars.write_text(json.dumps([{"label": "again", "min_ratio": 0}]))
    assert collectives(*args, "--bars", str(bars)).returncode == 0


def test_collectives_reports_a_backend_that_does_not_exist():
    done = collectives("-c", "gloo", "-c", "nonsense", "--ranks", "2", "--ops", "barrier")
    assert done.returncode == 1
    assert "nonsense" in done.stderr.lower()


def test_training_gives_equal_losses_on_both_sides(tmp_path):
    out = tmp_path / "out.json"
    args = ["--models", "mlp,gpt", "--steps", "2", "--warmup", "1", "--json", str(out)]
    done = program("training.py", *args)
    assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads(out.read_text())
    cases = [(r["model"], r["wrap"]) for r in records]
    assert cases == [("mlp", "ddp"), ("mlp", "fsdp2"), ("gpt", "ddp"), ("gpt", "fsdp2")]
    assert all(r["losses_equal"] and r["ratio_min"] > 0 for r in records)


@pytest.mark.parametrize("section", ["operators", "copies", "memory"])
def test_device_compares_openreg_with_the_cpu(section, tmp_path):
    out = tmp_path / "out.json"
    done = program("device.py", "--only", section, "--budget", "0.01", "--json", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(out.read_text())


def test_sanitizer_compares_on_and_off(tmp_path):
    out = tmp_path / "out.json"
    done = program("sanitizer.py", "--budget", "0.01", "--json", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["name"][:3] for record in json.loads(out.read_text())] == ["gpt", "gpt"]
