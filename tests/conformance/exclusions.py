"""Tests of torch's DistributedTest that cannot pass for a third-party backend, and why.

The expressions match the name, or the mode, a colon and the name."""

EXCLUSIONS = {
    r"test_nccl_high_priority_stream": "constructs ProcessGroupNCCL",
    r"test_monitored_barrier_(gloo|failure_order|wait_all)": (
        "torch's monitored_barrier() refuses every backend but gloo"
    ),
    r"test_monitored_barrier_allreduce_hang": "asks for the text of ProcessGroupNCCL's watchdog",
    r"test_ddp_logging_data": "torch names every third-party backend 'custom' in DDP's data",
    r"test_sparse_all_reduce": "ProcessGroupOCCL refuses sparse tensors, and says so",
    r"test_(isend(_autograd_profiler|_torch_profiler)?|irecv)$": (
        "asserts that wait() blocks the host until the transfer is complete, as gloo's does; on a "
        "device it orders the stream"
    ),
}
