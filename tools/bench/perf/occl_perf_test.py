"""occl_perf measures every operation and finds no wrong result."""

import os
import subprocess

import pytest


def occl_perf(*args: str) -> subprocess.CompletedProcess:
    command = [os.path.abspath(os.environ["OCCL_PERF"]), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("ranks", ["1", "2", "3"])
def test_finds_no_wrong_result(ranks):
    # 24 and 3,072 bytes are divisible by 1, 2 and 3 ranks.
    args = ["--op", "all", "-g", ranks, "-b", "24", "-e", "3072", "-f", "128", "-s", "0.01"]
    done = occl_perf(*args)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "out of bounds values: 0 OK" in done.stdout
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    divided_and_others = 18 if ranks != "1" else 16  # a rank alone has nobody to play with
    assert len(lines) == divided_and_others + 1  # and the barrier


@pytest.mark.parametrize("datatype", ["int8", "int64", "half", "bfloat16", "double"])
@pytest.mark.parametrize("redop", ["sum", "prod", "max", "min", "avg"])
def test_knows_the_results_of_every_reduction(datatype, redop):
    args = ["--op", "all_reduce,reduce_scatter,reduce", "-b", "4096", "-e", "4096", "-s", "0.01"]
    done = occl_perf(*args, "-d", datatype, "-o", redop, "--no-limit", "--refresh")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "args", [["--op", "ring"], ["-d", "float7"], ["-g", "0"], ["-b", "x"], ["-r", "2"], ["extra"]]
)
def test_refuses_bad_arguments(args):
    done = occl_perf(*args)
    assert done.returncode == 2 and "occl_perf: " in done.stderr
