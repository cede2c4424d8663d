"""Builds the test case that runs torch's DistributedTest on the configured backend and device.

Imported by the driver (run_disttest.py), by the server that ranks are forked from, and by every
rank. The configuration is in the environment, because the suite reads it when it is imported.
"""

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import shutil
import sys
import types

from ported_source import ported

CONFIG_VARIABLE = "DISTTEST_CONFIG"
_SUITE = "torch.testing._internal.distributed.distributed_test"


def fresh_folders():
    """What the suite wants in TEMP_DIR, empty."""
    folder = os.environ["TEMP_DIR"]
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("barrier", "test_dir", "init_dir"):
        os.makedirs(os.path.join(folder, name))


def _ask_the_device(common, device):
    """The harness's skips for too few accelerators ask `device` instead of CUDA."""
    import torch

    count = getattr(torch, device).device_count

    def skip(number):
        sys.exit(common.TEST_SKIPS[f"multi-gpu-{min(number, 8)}"].exit_code)

    def at_least(number, *, allow_cpu=False):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                if count() < number:
                    skip(number)
                return function(*args, **kwargs)

            return wrapper

        return decorate

    def one_each(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            if count() < int(os.environ["WORLD_SIZE"]):
                skip(int(os.environ["WORLD_SIZE"]))
            return function(*args, **kwargs)

        return wrapper

    def devices_of_ranks(world_size, backend):
        return {rank: [rank % count()] for rank in range(world_size)}

    common.skip_if_no_gpu = one_each
    common.skip_if_lt_x_gpu = at_least
    common.nccl_skip_if_lt_x_gpu = lambda backend, number: at_least(number)
    common.require_n_gpus_for_nccl_backend = lambda number, backend: at_least(number)
    common.init_multigpu_helper = devices_of_ranks


def _load(config):
    for module in config["modules"]:
        importlib.import_module(module)
    import torch
    from torch.testing._internal import common_distributed as common

    backend, device, mode = config["backend"], config["device"], config["mode"]
    features = common.DistTestCases.backend_feature
    for feature in ("ddp", "subgroup", "plugin", "gpu", "cuda", device):
        features[feature] = set(features.get(feature, features["cuda"])) | {backend}
    if mode == "port":
        _ask_the_device(common, device)
        # These tests build CPU tensors; the mode default-device has them.
        skipped = common.DistTestCases.skip_collective
        for feature in ("allgather_coalesced", "sendrecv anysource", "cpu barrier"):
            skipped[feature] = set(skipped[feature]) | {backend}
    spec = importlib.util.find_spec(_SUITE)
    suite = types.ModuleType(_SUITE)
    suite.__file__, suite.__spec__ = spec.origin, spec
    suite.NCCL_LIKE, suite.GLOO_LIKE = {"nccl", backend}, {"gloo", backend}
    suite._device = lambda index=None: (
        torch.device(device, index) if isinstance(index, int) else torch.device(index or device)
    )
    sys.modules[_SUITE] = suite
    with open(spec.origin) as file:
        source = ported(file.read(), device, mode)
    exec(compile(source, spec.origin, "exec"), suite.__dict__)
    return suite, common


def _build(config):
    suite, common = _load(config)
    import torch
    import torch.multiprocessing as mp

    device, mode = config["device"], config["mode"]

    class DistSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            # Not TestDistBackend's: it wants a decorator's trace that only NCCL's tests have.
            common.MultiProcessTestCase.setUp(self)
            fresh_folders()
            suite.Barrier.init()
            self.skip_return_code_checks = []
            plain = getattr(self.test_ddp_has_finalized, "__wrapped__", None)
            if plain is not None:
                self.skip_return_code_checks.append(plain)
            self._start_processes(mp.get_context("forkserver").Process)

        def tearDown(self):
            common.MultiProcessTestCase.tearDown(self)
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.file_name)

        @classmethod
        def _run(cls, rank, test_name, file_name, parent_pipe, **kwargs):
            torch.set_num_threads(1)
            log = os.path.join(config["logs"], f"{test_name}.{rank}.log")
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            if mode != "asis" and device != "cpu":
                module = getattr(torch, device)
                # The CPU's half of the suite knows one device: ranks compare what they got by
                # pickle, and a tensor keeps its device there.
                own = mode == "port" or config["own_devices"]
                module.set_device(rank % max(1, module.device_count()) if own else 0)
                if mode == "default-device":
                    torch.set_default_device(device)
            super()._run(rank, test_name, file_name, parent_pipe, **kwargs)

    DistSuite.__module__, DistSuite.__qualname__ = __name__, "DistSuite"
    return DistSuite


if CONFIG_VARIABLE in os.environ:
    DistSuite = _build(json.loads(os.environ[CONFIG_VARIABLE]))
