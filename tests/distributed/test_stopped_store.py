"""The process that serves the ranks' TCPStore is stopped: it takes requests and answers none.

What asks the store ends at its own timeout, by an abort and by Ctrl-C, as everything else does.
"""

import contextlib
import datetime
import fcntl
import glob
import os
import select
import signal
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from harness import RankTestCase
from torch.testing._internal.common_utils import run_tests

_SHORT = datetime.timedelta(seconds=1)
_LONG = datetime.timedelta(seconds=200)
# No limit on the result: without a deadline of ours these waits last until the test's own.
_TOO_LATE_S = 30
_PATIENCE = datetime.timedelta(seconds=100)


def _wait_until_stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        while stat.read().rpartition(")")[2].split()[0] != "T":
            stat.seek(0)


def _wait_until_watched(pid, by):
    """Until the process `by` has looked who `pid` is."""
    end = time.monotonic() + _PATIENCE.total_seconds()
    told = f"Pid:\t{pid}\n"
    while time.monotonic() < end:
        for descriptor in glob.glob(f"/proc/{by}/fdinfo/*"):
            with contextlib.suppress(FileNotFoundError), open(descriptor) as info:
                if told in info.read():
                    return
        time.sleep(0.01)
    raise TimeoutError(f"process {by} has not looked who {pid} is")


def _kill(pid):
    """Returns once it has ended."""
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([process], [], [], _PATIENCE.total_seconds())


def _press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


class StoreOfRank0TestCase(RankTestCase):
    """Rank 0 serves the store."""

    ranks = 3

    def begin(self, timeout):
        """Makes the world, with another store to meet in."""
        self.files = dist.FileStore(self.file_name, self.world_size)
        if self.rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            self.files.set("port", str(store.port))
        else:
            store = dist.TCPStore("127.0.0.1", int(self.files.get("port")))
        dist.init_process_group(
            "occl", store=store, rank=self.rank, world_size=self.world_size, timeout=timeout
        )

    def meet(self, what, ranks):
        self.files.set(f"{what} {self.rank}", "")
        self.files.wait([f"{what} {rank}" for rank in ranks], _PATIENCE)


class StoppedStoreTest(StoreOfRank0TestCase):
    """Rank 0 stops; the others go on."""

    def run_stopped(self, timeout, call, prepare=lambda: None):
        """`call` on the others, with the group of `prepare` or the world, its store stopped."""
        self.begin(timeout)
        self.group = prepare() or dist.group.WORLD
        self.meet("begun", range(self.ranks))
        if self.rank == 0:
            self.files.set("pid", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        pid = int(self.files.get("pid"))
        _wait_until_stopped(pid)
        self.told = "has not answered for", f"; pid {pid}, which serves it, is stopped"
        try:
            call()
        finally:
            try:
                self.meet("over", (1, 2))
            finally:
                if self.rank == 1:
                    os.kill(pid, signal.SIGCONT)

    def fails(self, kind, call, *fragments):
        """`call`, before the test's end."""
        begin = time.monotonic()
        with self.raises(kind, *fragments):
            call()
        took_s = time.monotonic() - begin
        print(f"rank {self.rank}: ended after {took_s:.3f} s")
        self.assertLess(took_s, _TOO_LATE_S)

    def all_reduce(self):
        dist.all_reduce(torch.ones(4, device=self.device), group=self.group)
        torch.openreg.synchronize()

    def barrier(self, timeout):
        self.backend().monitored_barrier(timeout)

    def long_barrier(self):
        self.barrier(_LONG)

    def interrupted(self, kind, interrupt, call, *fragments):
        """`call` fails once `interrupt` runs, in another thread."""
        thread = threading.Timer(0.5, interrupt)
        thread.start()
        try:
            self.fails(kind, call, *fragments)
        finally:
            thread.join()

    def test_a_first_operation_ends_at_its_timeout(self):
        def call():
            told = ("all_reduce #1", f"rank {self.rank} of 3", "timeout", *self.told)
            self.fails(dist.DistBackendError, self.all_reduce, *told)
            self.fails(dist.DistBackendError, self.all_reduce, "all_reduce #1")
            dist.destroy_process_group()

        self.run_stopped(_SHORT, call)

    def test_a_first_operation_of_a_group_without_the_stopped_rank(self):
        def call():
            told = ("all_reduce #1", f"of 2 (global rank {self.rank})", *self.told)
            self.fails(dist.DistBackendError, self.all_reduce, *told)

        self.run_stopped(_SHORT, call, lambda: dist.new_group([1, 2], timeout=_SHORT))

    def test_a_first_message_ends_at_its_timeout(self):
        def send():
            dist.send(torch.ones(4, device=self.device), 3 - self.rank)
            torch.openreg.synchronize()

        def call():
            self.fails(dist.DistBackendError, send, "send #1", f"rank {self.rank} of 3")

        self.run_stopped(_SHORT, call)

    def test_making_a_communicator_ends_at_its_timeout(self):
        def connect():
            self.backend().eager_connect_single_device(self.device)

        def call():
            self.fails(dist.DistBackendError, connect, *self.told)

        self.run_stopped(_SHORT, call)

    def test_a_monitored_barrier_ends_at_its_timeout(self):
        def call():
            told = ("monitored_barrier", f"rank {self.rank} of 3", *self.told)
            self.fails(dist.DistBackendError, lambda: self.barrier(_SHORT), *told)

        self.run_stopped(_LONG, call)

    def test_symmetric_memory_ends_at_its_timeout(self):
        def call():
            block = symm_mem.empty(16, device=self.device)
            told = ("rendezvous of symmetric memory", f"rank {self.rank} of 3", *self.told)
            name = self.group.group_name
            self.fails(dist.DistBackendError, lambda: symm_mem.rendezvous(block, name), *told)

        self.run_stopped(_SHORT, call)

    def test_symmetric_memory_meets_once_the_store_answers(self):
        # What rank 1 asks comes behind a question without an answer, what rank 2 asks does not.
        block = symm_mem.empty(16, device=self.device)

        def rendezvous():
            return symm_mem.rendezvous(block, self.group.group_name)

        def call():
            if self.rank == 1:
                self.fails(dist.DistBackendError, lambda: self.barrier(_SHORT), *self.told)
            self.fails(dist.DistBackendError, rendezvous, *self.told)

        self.run_stopped(_SHORT, call, lambda: dist.new_group([1, 2], timeout=_SHORT))
        if self.rank != 0:
            block.fill_(self.rank)
            handle = rendezvous()
            handle.barrier()
            other = handle.get_buffer(2 - self.rank, (16,), torch.float32)
            self.assertEqual(other.cpu(), torch.full((16,), 3.0 - self.rank))
            handle.barrier()
            torch.openreg.synchronize()
        self.meet("read", range(self.ranks))

    def test_a_group_that_has_met_goes_on(self):
        def prepare():
            group = dist.new_group([1, 2])
            if self.rank != 0:
                dist.all_reduce(torch.ones(4, device=self.device), group=group)
            return group

        def call():
            tensor = torch.full((4,), float(self.rank), device=self.device)
            dist.all_reduce(tensor, group=self.group)
            self.assertEqual(tensor.cpu(), torch.full((4,), 3.0))

        self.run_stopped(_LONG, call, prepare)

    def test_an_abort_ends_a_first_operation(self):
        def call():
            abort = self.backend().abort
            self.interrupted(dist.DistBackendError, abort, self.all_reduce, "was aborted")

        self.run_stopped(_LONG, call)

    def test_an_abort_ends_a_monitored_barrier(self):
        def call():
            abort = self.backend().abort
            self.interrupted(dist.DistBackendError, abort, self.long_barrier, "was aborted")

        self.run_stopped(_LONG, call)

    def test_ctrl_c_ends_a_first_operation(self):
        self.run_stopped(
            _LONG, lambda: self.interrupted(KeyboardInterrupt, _press_ctrl_c, self.all_reduce)
        )

    def test_ctrl_c_ends_a_monitored_barrier(self):
        self.run_stopped(
            _LONG, lambda: self.interrupted(KeyboardInterrupt, _press_ctrl_c, self.long_barrier)
        )

    def test_a_store_that_answers_again_is_used_again(self):
        def call():
            self.fails(dist.DistBackendError, lambda: self.barrier(_SHORT), *self.told)

        self.run_stopped(_LONG, call)
        self.all_reduce()


class KilledStoreTest(StoreOfRank0TestCase):
    """Rank 0 dies."""

    def _check_return_codes(self, *arguments):
        self.assertEqual([process.exitcode for process in self.processes[1:]], [0, 0])

    def dies(self, call, *fragments):
        self.begin(_LONG)
        self.meet("begun", range(self.ranks))
        if self.rank == 0:
            time.sleep(0.3)  # the others wait
            os.kill(os.getpid(), signal.SIGKILL)
        with self.raises(dist.DistBackendError, f"rank {self.rank} of 3", *fragments):
            call()

    def test_in_a_first_operation(self):
        self.dies(lambda: dist.all_reduce(torch.ones(4, device=self.device)), "all_reduce #1")

    def test_in_a_monitored_barrier(self):
        self.dies(lambda: self.backend().monitored_barrier(_LONG), "monitored_barrier #1")

    def test_in_a_rendezvous_of_symmetric_memory(self):
        block = symm_mem.empty(16, device=self.device)
        told = "rendezvous of symmetric memory"
        self.dies(lambda: symm_mem.rendezvous(block, dist.group.WORLD), told)


class LeavingBarrierTest(StoreOfRank0TestCase):
    """What a monitored barrier says though rank 0 takes the store with it."""

    def begin_barrier(self):
        self.begin(_LONG)
        self.files.set(f"pid {self.rank}", str(os.getpid()))
        self.meet("begun", range(self.ranks))
        self.pids = [int(self.files.get(f"pid {rank}")) for rank in range(self.ranks)]

    def barrier(self):
        self.backend().monitored_barrier(_LONG)

    def fails(self, *fragments):
        with self.raises(dist.DistBackendError, "monitored_barrier #1", *fragments):
            self.barrier()

    def test_all_have_come_and_rank_0_leaves_at_once(self):
        self.begin_barrier()
        self.barrier()
        if self.rank == 0:
            os._exit(0)

    def test_one_has_died_and_rank_0_leaves_at_once(self):
        self.begin_barrier()
        if self.rank == 2:
            _wait_until_watched(self.pids[2], by=self.pids[0])
            _wait_until_watched(self.pids[0], by=self.pids[1])
            os._exit(0)
        self.fails(f"rank 2 (pid {self.pids[2]}) ended before it came")
        if self.rank == 0:
            os._exit(0)

    def test_rank_0_dies(self):
        self.begin_barrier()
        if self.rank == 0:
            _wait_until_watched(self.pids[0], by=self.pids[1])
            _wait_until_watched(self.pids[0], by=self.pids[2])
            os.kill(os.getpid(), signal.SIGKILL)
        self.fails(f"rank 0 (pid {self.pids[0]}) ")

    def test_one_dies_and_rank_0_at_the_same_time(self):
        self.begin_barrier()
        if self.rank == 0:
            _wait_until_watched(self.pids[2], by=self.pids[1])
            _kill(self.pids[2])
            os.kill(os.getpid(), signal.SIGKILL)
        if self.rank == 2:
            self.files.wait(["never"], _PATIENCE)
        self.fails(f"rank 2 (pid {self.pids[2]}) ended before it came")

    def _check_return_codes(self, *arguments):
        codes = {process.exitcode for process in self.processes}
        self.assertLessEqual(codes, {0, -signal.SIGKILL})


class LockedFileTest(RankTestCase):
    """A process that is stopped in a call of a FileStore holds the file's lock."""

    def test_a_first_operation_ends_at_its_timeout(self):
        store = dist.FileStore(self.file_name, self.world_size)
        over = dist.FileStore(self.file_name + ".over", self.world_size)
        dist.init_process_group("occl", store=store, rank=self.rank, world_size=2, timeout=_SHORT)
        over.set(f"begun {self.rank}", "")
        over.wait(["begun 0", "begun 1"], _PATIENCE)
        if self.rank == 1:
            with open(self.file_name, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                over.set("locked", "")
                over.wait(["over"], _PATIENCE)
        else:
            over.wait(["locked"], _PATIENCE)
            told = f"the store in {self.file_name} has not answered for"
            with self.raises(dist.DistBackendError, "all_reduce #1", "rank 0 of 2", told):
                dist.all_reduce(torch.ones(4, device=self.device))
            over.set("over", "")


if __name__ == "__main__":
    run_tests()
