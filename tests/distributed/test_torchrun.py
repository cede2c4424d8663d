"""Under torchrun: Ctrl-C ends a job quietly, survivors of a death go on, restarts start anew."""

import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest

DEADLINE_S = 240
_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchrun_ranks.py")
# What the library, or the runtime under it, writes when it has something to say.
_NOISE = re.compile(r"OCCL|openreg|terminate called|Fatal Python error|core dumped|\.cc:\d+")


def start(ranks, behaviour, *options):
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            *options,
            _SCRIPT,
            behaviour,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a process group of its own, as a terminal gives
    )


def read_until(process, text, times):
    """The output up to where `text` has been seen so often; ranks may write into one line."""
    end = time.monotonic() + DEADLINE_S
    output = ""
    while output.count(text) < times:
        ready, _, _ = select.select([process.stdout], [], [], max(0, end - time.monotonic()))
        assert ready, f"no {text!r} in time:\n{output}"
        chunk = os.read(process.stdout.fileno(), 65536)
        assert chunk, f"ended early:\n{output}"
        output += chunk.decode()
    return output


def finish(process):
    try:
        return process.communicate(timeout=DEADLINE_S)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("behaviour", ["reduce_for_ever", "wait_for_ever", "join_for_ever"])
def test_ctrl_c_ends_the_job_without_a_word_of_the_library(behaviour):
    process = start(2, behaviour)
    read_until(process, "begun", 2)
    time.sleep(0.2)  # some way into the wait
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    output = finish(process)
    took = time.monotonic() - begin
    print(f"{behaviour}: ended {took:.2f} s after Ctrl-C")
    assert process.returncode != 0
    noise = [line for line in output.splitlines() if _NOISE.search(line)]
    # torch's traceback of the program ("[rank0]:   File ...") names its lines, and those may name
    # the device; what C++ logs begins with "[rank0]:[".
    noise = [line for line in noise if not re.match(r"(\[rank\d+\]:)?\s", line)]
    assert not noise, output


def test_survivors_train_on_after_a_death():
    # The agent ends all ranks when it sees one dead: it is not to look before they are through.
    process = start(3, "train_on_after_a_death", "--monitor-interval=120")
    output = read_until(process, "trained on", 2)
    assert len(re.findall(r"rank [01] noticed after .*rank 2 \(pid \d+\)", output)) == 2, output
    os.killpg(process.pid, signal.SIGINT)
    finish(process)


# The agent's store still holds what the ranks that have died said in it.
def test_restarted_ranks_meet_among_themselves():
    process = start(3, "come_back", "--max-restarts=2", "--monitor-interval=0.1")
    output = finish(process)
    assert process.returncode == 0, output
    for rank in range(3):
        assert output.count(f"rank {rank} is through in attempt 2") == 1, output
