"""Tests of several ranks: torch's MultiProcessTestCase, with ranks that start quickly.

Ranks are forked from a server that has imported torch (forkserver), so a test costs about as much
as its own work. Every test has a deadline: torch's harness kills the ranks and shows where they
were.
"""

import contextlib
import datetime
import os
import select
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch_openreg  # noqa: F401
from torch.testing._internal import common_distributed
from torch.testing._internal.common_distributed import MultiProcessTestCase

# torch's harness gives up on a test after this many seconds.
common_distributed.TIMEOUT_DEFAULT = 240
# The deadline of each operation of the ranks: a hang is then an error that names its place.
OPERATION_TIMEOUT = datetime.timedelta(seconds=60)

_PRELOADED = [
    "torch",
    "torch.distributed",
    "torch.testing._internal.common_distributed",
    "torch_openreg",
    "numpy",
]


def _server():
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


class RankTestCase(MultiProcessTestCase):
    """Each test method runs on `world_size` ranks, in processes of their own."""

    ranks = 2
    # A device for each rank, as with accelerators; otherwise all share the first.
    own_devices = False

    @property
    def world_size(self) -> int:
        return self.ranks

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()

    def tearDown(self) -> None:
        super().tearDown()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.file_name)

    def _spawn_processes(self) -> None:
        self._start_processes(_server().Process)

    @classmethod
    def _run(cls, rank, test_name, file_name, parent_pipe, **kwargs) -> None:
        torch.set_num_threads(1)
        # torch's harness asks for C++ stack traces, whose symbols take seconds; the answer to
        # whether they are on is remembered at the first exception.
        with contextlib.suppress(RuntimeError):
            torch.empty(-1)
        super()._run(rank, test_name, file_name, parent_pipe, **kwargs)

    # ---- for the tests

    @property
    def device(self) -> torch.device:
        """The device that this rank uses."""
        return torch.device("openreg", self.rank if self.own_devices else 0)

    def init(self, backend="occl", timeout=OPERATION_TIMEOUT, **options) -> dist.ProcessGroup:
        """The default group, met in a file."""
        if self.own_devices:
            torch.openreg.set_device(self.device)
        dist.init_process_group(
            backend,
            init_method=options.pop("init_method", f"file://{self.file_name}"),
            rank=self.rank,
            world_size=self.world_size,
            timeout=timeout,
            **options,
        )
        return dist.group.WORLD

    def backend(self, group=None):
        return (group or dist.group.WORLD)._get_backend(torch.device("openreg"))

    @contextlib.contextmanager
    def raises(self, kind, *fragments):
        """As assertRaises, and the message contains every fragment."""
        with self.assertRaises(kind) as caught:
            yield caught
        for fragment in fragments:
            self.assertIn(fragment, str(caught.exception))


def values(rank, count, dtype=torch.float32, start=1):
    """`count` values that differ by rank and index, small enough for every dtype, on the CPU."""
    if dtype == torch.bool:
        return (torch.arange(count) + rank) % 3 == 0
    numbers = (torch.arange(count) * 3 + rank * 5) % 7 + start
    if dtype.is_complex:
        return torch.complex(numbers.double(), (numbers + rank).double()).to(dtype)
    return numbers.to(dtype)


def read_line(pipe, timeout_s=120) -> str:
    """The next line that a process writes, "" at its end; the first one read from this pipe."""
    ready, _, _ = select.select([pipe], [], [], timeout_s)
    if not ready:
        raise TimeoutError(f"no line within {timeout_s} s")
    return pipe.readline()


def fault_of_torch(reason):
    """For a test in which the sanitizer finds a fault of torch: not with the sanitizer on."""
    return unittest.skipIf(torch.openreg.sanitizer.is_enabled(), reason)


def temporary_file_name() -> str:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        return file.name


def read_by_torchs_tool(dumps):
    """What torch's flight recorder tool makes of the dumps of rank 0, 1, ..."""
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig

    details = {
        f"rank{rank}": {"host_name": f"host_rank{rank}", "rank": rank, **dump}
        for rank, dump in enumerate(dumps)
    }
    args = JobConfig().parse_args(["--prefix", "rank", "unused"])
    return build_db(details, args, "2.10")
