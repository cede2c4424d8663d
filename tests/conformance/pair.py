"""The backend, the device and the number of ranks that the harnesses are pointed at.

A vendor sets the environment:
  CONFORMANCE_MODULE    registers both when it is imported (default torch_openreg)
  CONFORMANCE_BACKEND   default occl
  CONFORMANCE_DEVICE    default openreg; at least as many devices as ranks
  CONFORMANCE_RANKS     default 2
"""

import importlib
import os

import torch.multiprocessing as mp

MODULE = os.environ.get("CONFORMANCE_MODULE", "torch_openreg")
BACKEND = os.environ.get("CONFORMANCE_BACKEND", "occl")
DEVICE = os.environ.get("CONFORMANCE_DEVICE", "openreg")
RANKS = int(os.environ.get("CONFORMANCE_RANKS", "2"))

importlib.import_module(MODULE)


def start_ranks_quickly():
    """torch's harnesses start ranks from a server that has imported torch, where they let us."""
    if mp.get_start_method(allow_none=True) is None:
        mp.set_start_method("forkserver")
        mp.set_forkserver_preload(["torch", "torch.distributed", MODULE])
