"""A part of torch's own DistributedTest in each device mode: the short form of run_disttest."""

import re
import subprocess
import sys

import pytest
import run_disttest

# About one of each kind; the whole suite takes minutes for each mode.
PARTS = {
    "port": (
        "test_(all_gather_cuda|all_reduce_sum_cuda|broadcast_cuda|reduce_scatter_tensor_cuda"
        "|all_to_all_single_unequal_split_cuda|batch_isend_irecv_nccl|gather_object|SyncBatchNorm"
        "|DistributedDataParallel_requires_grad|ddp_hook_parity_allreduce|send_recv_nccl)$"
    ),
    "default-device": (
        "test_(all_gather_full_group|all_reduce_full_group_max|broadcast_group|scatter_full_group"
        "|reduce_full_group_sum|send_recv_any_source|send_recv_with_tag|barrier_timeout_global"
        "|new_subgroups)$"
    ),
}


@pytest.mark.parametrize("mode", PARTS)
def test_suite(mode):
    done = subprocess.run(
        [sys.executable, run_disttest.__file__, "--mode", mode, "-k", PARTS[mode]],
        capture_output=True,
        text=True,
        timeout=600,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    passed = re.findall(r"^pass ", done.stdout, re.MULTILINE)
    assert len(passed) >= 6
