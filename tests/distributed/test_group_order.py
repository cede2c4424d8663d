"""Groups that ranks use in different orders: the error names both sides.

Rank 0's deadline passes first in each test; rank 1 is told what rank 0 has seen.
"""

import datetime
import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.common_utils import run_tests

_SHORT = datetime.timedelta(seconds=3)
_LONG = datetime.timedelta(seconds=100)


class GroupOrderTest(RankTestCase):
    def begin(self, met, timeout=_SHORT):
        """Two groups of both ranks; `met`: they have been used; `timeout`: of rank 0."""
        self.init()
        if met:
            dist.all_reduce(self.tensor())
            torch.openreg.synchronize()
        groups = [dist.new_group([0, 1], timeout=_LONG) for _ in range(2)]
        for group in groups if met else []:
            dist.all_reduce(self.tensor(), group=group)
            torch.openreg.synchronize()
        for group in groups if self.rank == 0 else []:
            self.backend(group)._set_default_timeout(timeout)
        self.pids = self.meet("begun", os.getpid())
        return groups

    def tensor(self):
        return torch.ones(4, device=self.device)

    def meet(self, name, value=""):
        store = c10d._get_default_store()
        store.set(f"{name}/{self.rank}", str(value))
        return [store.get(f"{name}/{rank}").decode() for rank in range(2)]

    def all_reduce(self, group):
        dist.all_reduce(self.tensor(), group=group)

    def who_waits(self, operation, group):
        return f"{operation} for rank(s) 0 (pid {self.pids[0]}) in communicator {group.group_name}"

    def fails(self, *fragments):
        return self.raises(RuntimeError, "timed out", f"rank(s) 1 (pid {self.pids[1]})", *fragments)

    def test_on_one_stream(self):
        first, second = self.begin(met=True)
        told = "while it waits in " + self.who_waits("all_reduce #2", second)
        with self.fails("all_reduce #2", f"group '{first.group_name}'", told):
            for group in (first, second) if self.rank == 0 else (second, first):
                self.all_reduce(group)
            torch.openreg.synchronize()
        self.meet("over")

    def test_on_streams_that_wait_for_each_other(self):
        first, second = self.begin(met=True)
        with self.fails(self.who_waits("all_reduce #2", second)):
            streams = [torch.Stream(self.device) for _ in range(2)]
            groups = (first, second) if self.rank == 0 else (second, first)
            for stream, group in zip(streams, groups, strict=True):
                with stream:
                    stream.wait_stream(streams[0])
                    self.all_reduce(group)
            torch.openreg.synchronize()
        self.meet("over")

    def test_a_message_in_another_group(self):
        first, second = self.begin(met=True)
        told = self.who_waits("recv #1 with tag 5", second)
        if self.rank == 1:
            receive = dist.irecv(self.tensor(), 0, second, tag=5)
            receive.wait()  # the current stream
        with self.fails(told):
            self.all_reduce(first)
            torch.openreg.synchronize()
        if self.rank == 0:
            dist.send(self.tensor(), 1, second, tag=5)
        self.meet("over")

    def test_a_message_in_the_same_group(self):
        first, _ = self.begin(met=True)
        if self.rank == 1:
            dist.irecv(self.tensor(), 0, first, tag=5).wait()
        with self.fails("all_reduce #2", self.who_waits("recv #1 with tag 5", first)):
            self.all_reduce(first)
            torch.openreg.synchronize()
        self.meet("over")

    def test_first_use(self):
        """On the host: nothing joins the two processes but the store."""
        first, second = self.begin(met=False)
        told = f"it waits in all_reduce #1 on rank 1 of 2 in group '{second.group_name}'"
        if self.rank == 0:
            with self.raises(dist.DistBackendError, f"rank 1 (pid {self.pids[1]}) runs", told):
                self.all_reduce(first)
            self.all_reduce(second)
        else:
            self.all_reduce(second)
            with self.raises(dist.DistBackendError, "aborted by rank 0", told):
                self.all_reduce(first)
        self.meet("over")

    def test_first_use_of_a_group_that_the_other_does_not_use(self):
        first, _ = self.begin(met=False)
        if self.rank == 0:
            with self.raises(dist.DistBackendError, "rank(s) 1 did not come in time"):
                self.all_reduce(first)
        self.meet("rank 0 has given up")
        third = dist.new_group([0, 1], timeout=_SHORT)
        told = f"it has given up all_reduce #1 on rank 0 of 2 in group '{first.group_name}'"
        if self.rank == 1:
            with self.raises(dist.DistBackendError, "rank 0 (pid", told):
                self.all_reduce(third)
        self.meet("over")

    def test_first_use_that_was_interrupted(self):
        first, second = self.begin(met=False)
        told = f"all_reduce #1 on rank 1 of 2 in group '{second.group_name}'"
        if self.rank == 1:
            signal.signal(signal.SIGINT, signal.default_int_handler)

            def interrupt():
                dist.group.WORLD.get_group_store().wait(["openreg//occl/wait_of_rank_1"], _LONG)
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt).start()
            with self.assertRaises(KeyboardInterrupt):
                self.all_reduce(second)
        self.meet("interrupted")
        if self.rank == 0:
            with self.raises(dist.DistBackendError, f"; it has given up {told}"):
                self.all_reduce(first)
        self.meet("over")

    def test_first_use_by_a_rank_that_waits_on_a_stream(self):
        first, second = self.begin(met=True)
        third = dist.new_group([0, 1], timeout=_SHORT)
        told = "it waits in " + self.who_waits("all_reduce #2", second)
        if self.rank == 0:
            with self.raises(dist.DistBackendError, f"rank 1 (pid {self.pids[1]}) runs", told):
                self.all_reduce(third)
        self.all_reduce(second)
        torch.openreg.synchronize()
        self.meet("over")

    def test_a_wait_on_the_host_for_a_rank_that_waits_on_a_stream(self):
        first, _ = self.begin(met=True)
        third = dist.new_group([0, 1], timeout=_LONG)
        told = f"it waits in the first use of communicator {third.group_name} for rank(s) 0"
        if self.rank == 0:
            with self.raises(RuntimeError, "timed out", told):
                self.all_reduce(first)
                torch.openreg.synchronize()
        self.all_reduce(third)
        torch.openreg.synchronize()
        self.meet("over")

    def says_while_it_waits(self, wait, *fragments):
        """Each wait(timeout) ends; what it says once rank 1's wait has lasted."""
        end = time.monotonic() + _LONG.total_seconds()
        said = ""
        while time.monotonic() < end and not all(fragment in said for fragment in fragments):
            with self.assertRaises(dist.DistBackendError) as caught:
                wait(datetime.timedelta(milliseconds=100))
            said = str(caught.exception)
        for fragment in ("wait(timeout) of 100 ms is over", "the operation goes on", *fragments):
            self.assertIn(fragment, said)

    def test_a_wait_with_its_own_timeout_says_the_same(self):
        first, second = self.begin(met=True, timeout=_LONG)
        told = self.who_waits("all_reduce #2", second)
        if self.rank == 0:
            missed = f"is over, waiting for rank(s) 1 (pid {self.pids[1]}) whose last operation is"
            work = dist.all_reduce(self.tensor(), group=first, async_op=True)
            self.says_while_it_waits(
                work.wait, missed, "all_reduce #2 on", f"while it waits in {told}"
            )
            later = dist.barrier(first, async_op=True)
            behind = "is over, behind an earlier operation, waiting for rank(s) 1"
            self.says_while_it_waits(later.wait, behind, "barrier #3 on", told)
            self.all_reduce(second)
            work.wait(_LONG)
            later.wait(_LONG)
        else:
            self.all_reduce(second)
            torch.openreg.synchronize()
            self.all_reduce(first)
            dist.barrier(first)
        self.meet("over")

    def test_a_wait_for_messages_with_its_own_timeout_says_the_same(self):
        first, second = self.begin(met=True, timeout=_LONG)
        told = f"while it waits in {self.who_waits('all_reduce #2', second)}"
        large = torch.ones(100_000, device=self.device)
        if self.rank == 0:
            missed = f"is over, waiting for rank(s) 1 (pid {self.pids[1]})"
            works = [
                dist.irecv(self.tensor(), 1, first, tag=3),
                dist.isend(large, 1, first, tag=4),
                *dist.batch_isend_irecv([dist.P2POp(dist.irecv, large.clone(), 1, first, 5)]),
            ]
            for work in works:
                self.says_while_it_waits(work.wait, missed, told)
            from_any = dist.irecv(self.tensor(), None, first, tag=6)
            self.says_while_it_waits(from_any.wait, "is over, waiting for a message from any rank")
            self.all_reduce(second)
            for work in (*works, from_any):
                work.wait(_LONG)
        else:
            self.all_reduce(second)
            torch.openreg.synchronize()
            dist.send(self.tensor(), 0, first, tag=3)
            dist.recv(large, 0, first, tag=4)
            dist.send(large, 0, first, tag=5)
            dist.send(self.tensor(), 0, first, tag=6)
            torch.openreg.synchronize()
        self.meet("over")

    def test_a_monitored_barrier_says_where_the_missing_wait(self):
        first, second = self.begin(met=True, timeout=_LONG)
        told = f"; rank 1 (pid {self.pids[1]}) runs; it waits in "
        told += self.who_waits("all_reduce #2", second)
        if self.rank == 0:
            barrier = self.backend(first).monitored_barrier
            end = time.monotonic() + _LONG.total_seconds()
            said = ""
            while time.monotonic() < end and told not in said:
                with self.raises(dist.DistBackendError, "rank 1 did not come") as caught:
                    barrier(datetime.timedelta(milliseconds=100))
                said = str(caught.exception)
            self.assertIn(told, said)
        self.all_reduce(second)
        torch.openreg.synchronize()
        self.meet("over")

    def test_nothing_is_told_of_waits_that_are_over(self):
        first, second = self.begin(met=False)
        if self.rank == 0:
            time.sleep(0.3)  # rank 1 has told that it waits
        self.all_reduce(second)
        torch.openreg.synchronize()
        if self.rank == 0:
            with self.assertRaises(dist.DistBackendError) as caught:
                self.all_reduce(first)
            self.assertNotIn("it waits", str(caught.exception))
            self.assertNotIn("given up", str(caught.exception))
        self.meet("over")


if __name__ == "__main__":
    run_tests()
