"""A rank whose stderr nobody reads (a stopped reader of a pipe) is told of failures as any other.

Its log lines are dropped; it hangs nowhere, also not at its end.
"""

import contextlib
import datetime
import fcntl
import os
import signal
import tempfile
import time

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch.testing._internal.common_utils import run_tests

_STORE_WAIT = datetime.timedelta(seconds=60)


def _fill(pipe):
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"x" * 512)
    os.set_blocking(pipe, True)


class UnreadTestCase(RankTestCase):
    ranks = 3
    operation_timeout = datetime.timedelta(seconds=60)

    def begin(self, unread):
        self.init(timeout=self.operation_timeout)
        self.pids = [None] * self.ranks
        dist.all_gather_object(self.pids, os.getpid())
        self.store = dist.group.WORLD.get_group_store()
        dist.all_reduce(torch.ones(1, device=self.device))
        torch.openreg.synchronize()
        self.store.set(f"begun/{self.rank}", "")  # what follows fails the group
        self.store.wait([f"begun/{rank}" for rank in range(self.ranks)], _STORE_WAIT)
        return self.nobody_reads() if self.rank in unread else contextlib.nullcontext()

    @contextlib.contextmanager
    def nobody_reads(self):
        """This rank's stderr, from now on; at a failure of the test it is as before."""
        before = os.dup(2)
        self.reader, pipe = os.pipe()  # the reading end stays open
        os.dup2(pipe, 2)
        os.close(pipe)
        _fill(2)
        try:
            yield
        except BaseException:
            os.dup2(before, 2)
            raise
        self.assertEqual(fcntl.fcntl(2, fcntl.F_GETFL) & os.O_NONBLOCK, 0)

    def fails(self, call, *fragments):
        begin = time.monotonic()
        with self.raises(dist.DistBackendError, *fragments):
            call()
            torch.openreg.synchronize()
        print(f"rank {self.rank}: told after {time.monotonic() - begin:.2f} s", flush=True)
        self.store.set(f"told/{self.rank}", "")


class MismatchTest(UnreadTestCase):
    def mismatch(self, unread):
        with self.begin(unread):
            tensor = torch.ones(4, device=self.device)
            if self.rank == 2:
                self.fails(lambda: dist.broadcast(tensor, 0), "broadcast", "all_reduce")
            else:
                self.fails(lambda: dist.all_reduce(tensor), "broadcast", "all_reduce")
            self.store.wait([f"told/{rank}" for rank in range(self.ranks)], _STORE_WAIT)
            dist.destroy_process_group()

    def test_one_rank_is_unread(self):
        self.mismatch([0])

    def test_all_ranks_are_unread(self):
        self.mismatch([0, 1, 2])

    def test_neither_is_the_flight_recorders_file(self):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        os.mkfifo(f"{folder}/dump_{self.rank}")
        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{folder}/dump_"
        self.mismatch([0, 1, 2])


class TimeoutTest(UnreadTestCase):
    operation_timeout = datetime.timedelta(seconds=2)

    def test_all_ranks_are_unread(self):
        with self.begin([0, 1, 2]):
            if self.rank != 2:
                tensor = torch.ones(4, device=self.device)
                self.fails(lambda: dist.all_reduce(tensor), "all_reduce", "timeout")
            self.store.wait(["told/0", "told/1"], _STORE_WAIT)
            dist.destroy_process_group()


class DeathTest(UnreadTestCase):
    def death(self, unread):
        with self.begin(unread):
            if self.rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            tensor = torch.ones(4, device=self.device)
            self.fails(lambda: dist.all_reduce(tensor), f"2 (pid {self.pids[2]}) has died")
            self.store.wait(["told/0", "told/1"], _STORE_WAIT)
            dist.destroy_process_group()

    def test_one_rank_is_unread(self):
        self.death([0])

    def test_all_ranks_are_unread(self):
        self.death([0, 1])

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [0, 0, -signal.SIGKILL])


class ClosedTest(RankTestCase):
    """What is opened next would get the log lines: the memory of a device, or of a group."""

    @contextlib.contextmanager
    def closed(self):
        before = [os.dup(fd) for fd in range(3)]
        for fd in range(3):
            os.close(fd)
        try:
            yield
        finally:
            for fd, copy in enumerate(before):
                os.dup2(copy, fd)
                os.close(copy)

    @staticmethod
    def places():
        """What is open in the places of stdin, stdout and stderr."""
        found = []
        for fd in range(3):
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
        return found

    def test_nothing_takes_their_places(self):
        with self.closed():
            parameters = torch.arange(1000.0, device=self.device)
            self.init()
            group = dist.new_group()
            tensor = torch.ones(4 + self.rank, device=self.device)
            with self.raises(dist.DistBackendError, "the ranks disagree about the count"):
                dist.all_reduce(tensor, group=group)
                torch.openreg.synchronize()
            with contextlib.suppress(dist.DistBackendError):
                torch.openreg.synchronize()  # where the call itself was told, the stream is as well
            dist.all_reduce(torch.ones(4, device=self.device))
            places = self.places()
            found = parameters.cpu()
        self.assertEqual(found, torch.arange(1000.0))
        self.assertEqual([place for place in places if not place.startswith("/dev/")], [])
        dist.destroy_process_group()


if __name__ == "__main__":
    run_tests()
