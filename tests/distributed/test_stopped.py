"""A rank that is stopped before the others have reached it: their own deadlines count."""

import datetime
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.common_utils import run_tests

from tests.distributed.harness import RankTestCase

_TIMEOUT = datetime.timedelta(seconds=1)
# A stopped process was once asked for ten seconds, whatever the operation's timeout.
_TOO_LATE_S = 9


class StoppedRankTest(RankTestCase):
    """Rank 1 joins and stops; the others have joined."""

    ranks = 3

    def begin(self, joins_first):
        """The process of rank 1, about to stop, on rank 0; the others end with the test."""
        self.init(timeout=_TIMEOUT)
        store = c10d._get_default_store()
        tensor = torch.ones(4, device=self.device)

        def others_join():
            if self.rank == 0:
                dist.send(tensor, 2)
            elif self.rank == 2:
                dist.recv(tensor, 0)
            torch.openreg.synchronize()
            store.set(f"joined {self.rank}", "")

        if joins_first == 0:
            others_join()
        if self.rank == 1:
            if joins_first == 0:
                store.wait(["joined 0", "joined 2"], datetime.timedelta(seconds=60))
            dist.isend(tensor, 0)
            store.set("pid", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.rank == 0:
            return int(store.get("pid"))
        store.wait(["over"], datetime.timedelta(seconds=60))
        return 0

    def fails_in_time(self, pid, call, *fragments):
        with open(f"/proc/{pid}/stat") as stat:  # it sleeps for a moment at most before it stops
            while stat.read().rpartition(")")[2].split()[0] != "T":
                stat.seek(0)
        begin = time.monotonic()
        try:
            with self.raises(dist.DistBackendError, "timeout", f"(pid {pid})", *fragments):
                call()
            took_s = time.monotonic() - begin
        finally:
            os.kill(pid, signal.SIGCONT)
            c10d._get_default_store().set("over", "")
        print(f"the deadline of 1 s came after {took_s:.3f} s")
        self.assertLess(took_s, _TOO_LATE_S)

    def all_reduce(self):
        dist.all_reduce(torch.ones(4, device=self.device))

    def test_a_collective(self):
        pid = self.begin(joins_first=0)
        if self.rank == 0:
            self.fails_in_time(pid, self.all_reduce, "all_reduce #1", "rank(s) 1 (pid")

    def test_a_collective_whose_first_rank_is_stopped(self):
        pid = self.begin(joins_first=1)
        if self.rank == 0:
            self.fails_in_time(pid, self.all_reduce, "all_reduce #1", "rank 1 (pid")

    def test_a_collective_whose_ranks_have_all_met_in_messages(self):
        self.init(timeout=_TIMEOUT)
        store = c10d._get_default_store()
        tensor = torch.ones(4, device=self.device)
        for first, second in ((0, 1), (1, 2), (0, 2)):
            if self.rank == first:
                dist.send(tensor, second)
            elif self.rank == second:
                dist.recv(tensor, first)
        torch.openreg.synchronize()
        if self.rank == 1:
            store.set("pid", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.rank == 0:
            pid = int(store.get("pid"))
            self.fails_in_time(pid, self.all_reduce, "all_reduce #1", "rank(s) 1 (pid")
        store.wait(["over"], datetime.timedelta(seconds=60))

    def test_a_message(self):
        pid = self.begin(joins_first=0)
        if self.rank == 0:
            found = torch.empty(4, device=self.device)
            work = []

            def receive():
                work.append(dist.irecv(found, 1))
                work[0].wait(datetime.timedelta(seconds=30))

            self.fails_in_time(pid, receive, "recv #")


if __name__ == "__main__":
    run_tests()
