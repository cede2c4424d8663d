"""A group's first operation: sends and receives need nobody but their two ranks."""

import datetime
import os
import select
import signal
import time

import torch
import torch.distributed as dist
from harness import RankTestCase, values
from torch.testing._internal.common_utils import run_tests

_SHORT = datetime.timedelta(seconds=2)


class FirstUseTest(RankTestCase):
    ranks = 4

    def tensor(self, rank, count, **options):
        return values(rank, count, **options).to(self.device)

    def expect(self, found, rank, count):
        self.assertEqual(found.cpu(), values(rank, count))

    def test_send_and_recv_of_two_ranks_only(self):
        self.init()
        for count in (1, 100_003):
            if self.rank == 2:
                dist.send(self.tensor(2, count), 3)
            elif self.rank == 3:
                found = torch.empty(count, device=self.device)
                self.assertEqual(dist.recv(found, 2), 2)
                self.expect(found, 2, count)
        if self.rank >= 2:
            # Before anybody else uses the group: the store says when that is over.
            torch.openreg.synchronize()
            dist.distributed_c10d._get_default_store().add("done", 1)
        else:
            dist.distributed_c10d._get_default_store().wait(["done"])
        dist.all_reduce(total := torch.ones(1, device=self.device))
        self.assertEqual(total.item(), 4)

    def test_a_batch_of_two_ranks_only(self):
        self.init()
        if self.rank in (0, 1):
            peer = 1 - self.rank
            found = torch.empty(5000, device=self.device)
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, self.tensor(self.rank, 5000), peer),
                    dist.P2POp(dist.irecv, found, peer),
                ]
            )
            for work in works:
                work.wait()
            self.expect(found, peer, 5000)
            torch.openreg.synchronize()

    def test_a_matched_pair_completes_though_another_is_unmatched(self):
        self.init()
        others = dist.new_group([0, 1])
        if self.rank == 0:
            found = torch.empty(3, device=self.device)
            ops = [
                dist.P2POp(dist.isend, self.tensor(0, 3), 1),
                dist.P2POp(dist.irecv, found, 1),
            ]
            works = dist.batch_isend_irecv(ops)
            dist.barrier(group=others)
            for work in works:
                work.wait()
            self.expect(found, 1, 3)
        elif self.rank == 1:
            found = torch.empty(3, device=self.device)
            dist.irecv(found, 0).wait()
            self.expect(found, 0, 3)
            dist.barrier(group=others)
            dist.send(self.tensor(1, 3), 0)
        if self.rank < 2:
            torch.openreg.synchronize()

    def test_a_ring_of_single_operations(self):
        self.init()
        found = torch.empty(1000, device=self.device)
        sent = dist.isend(self.tensor(self.rank, 1000), (self.rank + 1) % 4)
        received = dist.irecv(found, (self.rank + 3) % 4)
        sent.wait()
        received.wait()
        self.expect(found, (self.rank + 3) % 4, 1000)
        dist.barrier()  # a rank that leaves before the others have come is an error for them

    def test_a_send_before_a_collective_meets_a_recv_behind_it(self):
        self.init()
        total = torch.full((8,), float(self.rank), device=self.device)
        if self.rank == 0:
            sent = dist.isend(self.tensor(0, 4000), 3)
        dist.all_reduce(total)
        self.assertEqual(total.cpu(), torch.full((8,), 6.0))
        if self.rank == 3:
            found = torch.empty(4000, device=self.device)
            dist.recv(found, 0)
            self.expect(found, 0, 4000)
        elif self.rank == 0:
            sent.wait()
        dist.barrier()

    def test_recv_from_any_source_first(self):
        self.init()
        if self.rank == 1:
            sources = set()
            for _ in range(2):
                found = torch.empty(777, device=self.device)
                source = dist.recv(found)
                self.expect(found, source, 777)
                sources.add(source)
            self.assertEqual(sources, {0, 3})
        elif self.rank in (0, 3):
            dist.send(self.tensor(self.rank, 777), 1)
        dist.barrier()

    def test_a_subgroup_uses_its_members_only(self):
        self.init()
        group = dist.new_group([1, 2, 3])
        if self.rank == 1:
            dist.send(self.tensor(1, 50), group=group, group_dst=2)
            torch.openreg.synchronize()
        elif self.rank == 3:
            found = torch.empty(50, device=self.device)
            dist.recv(found, group=group, group_src=0)
            self.expect(found, 1, 50)
        dist.barrier()

    def test_a_collective_that_some_do_not_join(self):
        self.init(timeout=_SHORT)
        store = dist.distributed_c10d._get_default_store()
        store.set(f"pid{self.rank}", str(os.getpid()))
        pids = [int(store.get(f"pid{rank}")) for rank in range(4)]
        if self.rank in (0, 1):
            alive = [
                f"rank {rank} (pid {pids[rank]}) runs, and has not used the group"
                for rank in (2, 3)
            ]
            with self.raises(
                dist.DistBackendError, "all_reduce #1", "rank(s) 2, 3 did not come in time", *alive
            ):
                dist.all_reduce(torch.ones(1, device=self.device))
        store.set(f"waited{self.rank}", "")
        store.wait(["waited0", "waited1"], datetime.timedelta(seconds=30))

    def test_who_comes_after_another_has_given_up_is_told_of_it(self):
        self.init(timeout=_SHORT)
        store = dist.distributed_c10d._get_default_store()
        missing = "rank(s) 1, 2, 3 did not come in time"
        if self.rank == 0:
            store.set("pid", str(os.getpid()))
            with self.raises(dist.DistBackendError, "all_reduce #1", missing):
                dist.all_reduce(torch.ones(1, device=self.device))
            store.set("gave up", "")
        else:
            store.wait(["gave up"], datetime.timedelta(seconds=30))
            by = f"aborted by rank 0 (pid {int(store.get('pid'))})"
            with self.raises(dist.DistBackendError, "all_reduce #1", by, missing):
                dist.all_reduce(torch.ones(1, device=self.device))
        store.set(f"told{self.rank}", "")
        store.wait([f"told{rank}" for rank in range(4)], datetime.timedelta(seconds=30))

    def test_a_rank_that_has_not_made_the_group(self):
        store = dist.FileStore(self.file_name + "-meeting", 4)
        if self.rank != 3:
            self.init(timeout=_SHORT)
            told = "rank 3 has not made the group"
            with self.raises(dist.DistBackendError, "barrier #1", "rank(s) 3 did not", told):
                dist.barrier()
        store.set(f"waited{self.rank}", "")
        waited = [f"waited{rank}" for rank in range(3)]
        store.wait(waited, datetime.timedelta(seconds=30))

    def test_a_recv_whose_sender_never_comes(self):
        self.init(timeout=_SHORT)
        store = dist.distributed_c10d._get_default_store()
        if self.rank == 0:
            work = dist.irecv(torch.empty(4, device=self.device), 1)
            with self.raises(dist.DistBackendError, "timeout", "rank(s) 1"):
                work.wait(datetime.timedelta(seconds=20))
            store.set("waited", "")
        store.wait(["waited"], datetime.timedelta(seconds=30))  # it lives, and does not come


class DeathBeforeFirstUseTest(RankTestCase):
    """Rank 1 dies before it has joined the group in which messages wait for it."""

    def messages(self, group=None):
        """Ways to need rank 1."""
        tensor = torch.ones(4, device=self.device)
        large = torch.ones(100_000, device=self.device)
        return {
            "recv": lambda: dist.irecv(tensor, 1, group),
            "send": lambda: dist.isend(large, 1, group),
            "any": lambda: dist.irecv(tensor, group=group),
            "batch": lambda: dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, large, 1, group), dist.P2POp(dist.irecv, tensor, 1, group)]
            )[0],
        }

    def fails(self, call, pid):
        begin = time.monotonic()
        with self.raises(dist.DistBackendError, f"(pid {pid})"):
            call().wait(datetime.timedelta(seconds=50))
        print(f"rank 0 was told after {time.monotonic() - begin:.3f} s")

    def test_before_the_message(self):
        self.init()
        groups = [dist.new_group([0, 1]) for _ in self.messages()]
        store = dist.distributed_c10d._get_default_store()
        if self.rank == 1:
            store.set("pid", str(os.getpid()))
            self.die()
        pid = int(store.get("pid"))
        for name, group in zip(self.messages(), groups, strict=True):
            self.fails(self.messages(group)[name], pid)

    def test_before_a_group_as_large_as_the_world_is_made(self):
        self.init()
        dist.all_reduce(torch.ones(1, device=self.device))
        store = dist.distributed_c10d._get_default_store()
        if self.rank == 1:
            store.set("pid", str(os.getpid()))
            self.die()
        pid = int(store.get("pid"))
        group = dist.new_group([0, 1])
        with self.raises(dist.DistBackendError, "all_reduce #1", f"rank 1 (pid {pid}) ended"):
            dist.all_reduce(torch.ones(1, device=self.device), group=group)
        self.fails(self.messages(dist.new_group([0, 1]))["recv"], pid)

    def test_while_the_message_waits_and_after_it_was_issued(self):
        # Rank 1 says who it is only after rank 0 has begun to wait.
        store = dist.FileStore(self.file_name + "-meeting", 2)
        if self.rank == 1:
            store.wait(["issued"], datetime.timedelta(seconds=60))
            self.init()
            store.set("pid", str(os.getpid()))
            time.sleep(0.3)  # one more look of the other rank, or none
            self.die()
        self.init()
        work = self.messages()["recv"]()
        store.set("issued", "1")
        self.fails(lambda: work, int(store.get("pid")))
        os.remove(self.file_name + "-meeting")

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [0, -signal.SIGKILL])


class LateRanksTest(RankTestCase):
    """Ranks 1 and 2 first use the group when the rank that came first has left, and has exited."""

    ranks = 4

    def await_exit(self, rank):
        store = dist.distributed_c10d._get_default_store()
        try:
            pidfd = os.pidfd_open(int(store.get(f"pid{rank}")))
        except ProcessLookupError:
            return
        try:
            self.assertTrue(select.select([pidfd], [], [], 60)[0])
        finally:
            os.close(pidfd)

    def send(self, destination):
        dist.send(values(self.rank, 4000).to(self.device), destination)
        torch.openreg.synchronize()

    def recv(self, source):
        found = torch.empty(4000, device=self.device)
        dist.recv(found, source)
        self.assertEqual(found.cpu(), values(source, 4000))

    def late(self, another_lives, ending, told):
        self.init()
        store = dist.distributed_c10d._get_default_store()
        store.set(f"pid{self.rank}", str(os.getpid()))
        if self.rank == 0:
            self.send(3)
            return ending()
        if self.rank == 3:
            self.recv(0)
            if another_lives:
                self.send(1)
                store.wait(["over"], datetime.timedelta(seconds=60))
            return dist.destroy_process_group()
        self.await_exit(0)
        if not another_lives:
            self.await_exit(3)
        if self.rank == 2:
            self.send(1)
            store.wait(["over"], datetime.timedelta(seconds=60))
            return None
        self.recv(2)
        if another_lives:
            self.recv(3)
        pid = int(store.get("pid0"))
        with self.raises(dist.DistBackendError, f"rank 0 (pid {pid}) {told}"):
            work = dist.irecv(torch.empty(4, device=self.device), 0)
            work.wait(datetime.timedelta(seconds=50))
        with self.assertRaises(dist.DistBackendError):
            dist.all_reduce(torch.ones(1, device=self.device))
        store.set("over", "")

    def test_another_that_has_joined_lives(self):
        self.late(True, dist.destroy_process_group, "has destroyed the communicator")

    def test_all_that_had_joined_have_exited(self):
        self.late(False, dist.destroy_process_group, "has destroyed the communicator")

    def test_a_collective_names_who_has_left(self):
        self.init()
        store = dist.distributed_c10d._get_default_store()
        store.set(f"pid{self.rank}", str(os.getpid()))
        if self.rank in (0, 3):
            self.send(3) if self.rank == 0 else self.recv(0)
            return dist.destroy_process_group()
        self.await_exit(0)
        self.await_exit(3)
        names = [f"rank {rank} (pid {int(store.get(f'pid{rank}'))})" for rank in (0, 3)]
        with self.assertRaises(dist.DistBackendError) as caught:
            dist.all_reduce(torch.ones(1, device=self.device))
        self.assertIn("has destroyed the communicator", str(caught.exception))
        self.assertTrue(any(name in str(caught.exception) for name in names), caught.exception)
        store.set(f"told{self.rank}", "")
        store.wait(["told1", "told2"], datetime.timedelta(seconds=60))

    def test_a_failure_is_told_to_those_who_come_later(self):
        self.init(timeout=_SHORT)
        store = dist.distributed_c10d._get_default_store()
        store.set(f"pid{self.rank}", str(os.getpid()))
        if self.rank == 0:
            with self.raises(dist.DistBackendError, "rank(s) 1, 2, 3 did not come in time"):
                dist.all_reduce(torch.ones(1, device=self.device))
            return dist.destroy_process_group()
        self.await_exit(0)
        with self.raises(dist.DistBackendError, "rank(s) 1, 2, 3 did not come in time"):
            dist.irecv(torch.empty(4, device=self.device), 1 + self.rank % 3)


class LateRanksAfterADeathTest(LateRanksTest):
    """The same where the rank that came first is killed."""

    def kill(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def test_another_that_has_joined_lives(self):
        self.late(True, self.kill, "has died")

    def test_all_that_had_joined_have_exited(self):
        self.late(False, self.kill, "has died")

    test_a_collective_names_who_has_left = None
    test_a_failure_is_told_to_those_who_come_later = None

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [-signal.SIGKILL, 0, 0, 0])


if __name__ == "__main__":
    run_tests()
