"""Mistakes are refused before data moves; ranks that disagree all get an error at once."""

import datetime
import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch_openreg.distributed import ProcessGroupOCCL


class RefusalTest(RankTestCase):
    def test_arguments(self):
        self.init()
        here = f"rank {self.rank} of 2"
        one = torch.zeros(4, device=self.device)
        backend = self.backend()
        options = dist.BroadcastOptions()
        options.rootRank = 2
        with self.raises(ValueError, "expected a list of one tensor, got 2", here):
            backend.broadcast([one, one])
        with self.raises(ValueError, "root 2 is not a rank", here):
            backend.broadcast([one], options)
        with self.raises(ValueError, "expected 2 outputs (one per rank), got 1", here):
            backend.allgather([[one]], [one])
        with self.raises(ValueError, "expected 8 output elements", here):
            backend._allgather_base(torch.zeros(7, device=self.device), one)
        with self.raises(TypeError, "expected all tensors of dtype", here):
            backend._allgather_base(torch.zeros(8, dtype=torch.int32, device=self.device), one)
        with self.raises(ValueError, "expected all tensors on one device", here):
            backend._allgather_base(torch.zeros(8, device=self.device), one.to("openreg:1"))
        with self.raises(ValueError, "destination 5 is not a rank", here):
            backend.send([one], 5, 0)
        with self.raises(ValueError, "expected a tag of at least 0, got -3", here):
            backend.send([one], 0, -3)
        dist.all_reduce(one)  # the group is still good

    def test_reductions_that_make_no_sense(self):
        self.init()
        for dtype, op in [
            (torch.float32, dist.ReduceOp.BAND),
            (torch.bool, dist.ReduceOp.AVG),
        ]:
            with self.raises(TypeError, "is not defined for tensors of dtype"):
                dist.all_reduce(torch.zeros(2, dtype=dtype, device=self.device), op)
        eights = torch.zeros(2, dtype=torch.uint8, device=self.device).view(torch.float8_e5m2)
        with self.raises(TypeError, "is not defined for tensors of dtype"):
            self.backend().allreduce([eights])
        factor = torch.tensor(2 + 1j, device=self.device)
        with self.raises(ValueError, "expected a real factor", "Float", "2+1j"):
            dist.all_reduce(torch.ones(2, device=self.device), dist._make_nccl_premul_sum(factor))

    def test_all_to_all_splits(self):
        self.init()
        three = torch.zeros(3, device=self.device)
        four = torch.zeros(4, device=self.device)
        with self.raises(ValueError, "not divisible by the 2 ranks"):
            dist.all_to_all_single(three, three)
        with self.raises(ValueError, "input split sizes sum up to 3", "size 4"):
            dist.all_to_all_single(four, four, [2, 2], [1, 2])
        with self.raises(ValueError, "expected 2 output split sizes"):
            dist.all_to_all_single(four, four, [4], [2, 2])

    def test_nan_check_on_request(self):
        options = ProcessGroupOCCL.Options()
        options.nan_check = True
        self.init(pg_options=options)
        bad = torch.tensor([1.0, float("nan")], device=self.device)
        with self.raises(RuntimeError, "holds NaN", f"rank {self.rank}"):
            dist.all_reduce(bad)
        dist.all_reduce(torch.ones(2, device=self.device))


class MismatchTest(RankTestCase):
    """Each case has a group of its own, because a failed one is dead."""

    def disagree(self, *fragments, first, second):
        group = dist.new_group([0, 1])
        begin = time.monotonic()
        with self.assertRaises(dist.DistBackendError) as caught:
            work = (first if self.rank == 0 else second)(group)
            if work is not None:
                work.wait(datetime.timedelta(seconds=30))
            torch.openreg.synchronize()
        # An error of the peer, not this rank's deadline.
        self.assertLess(time.monotonic() - begin, 30)
        for fragment in fragments:
            self.assertIn(fragment, str(caught.exception))

    def test_disagreements_are_errors_on_every_rank(self):
        self.init()

        def tensor(count, dtype=torch.float32):
            return torch.zeros(count, dtype=dtype, device=self.device)

        def reduce_of(count, dtype=torch.float32, op=dist.ReduceOp.SUM):
            return lambda group: dist.all_reduce(tensor(count, dtype), op, group, async_op=True)

        self.disagree("all_reduce", "count", "4", "8", first=reduce_of(4), second=reduce_of(8))
        self.disagree(
            "all_reduce", "datatype", first=reduce_of(4), second=reduce_of(4, torch.float64)
        )
        self.disagree("all_reduce", first=reduce_of(4), second=reduce_of(4, op=dist.ReduceOp.MAX))
        self.disagree(
            "broadcast",
            "root",
            first=lambda group: dist.broadcast(tensor(4), 0, group, async_op=True),
            second=lambda group: dist.broadcast(tensor(4), 1, group, async_op=True),
        )
        self.disagree(
            first=reduce_of(4),
            second=lambda group: dist.all_gather_single(
                tensor(8), tensor(4), group=group, async_op=True
            ),
        )
        # Other groups are not affected.
        ones = torch.ones(3, device=self.device)
        dist.all_reduce(ones)
        self.assertEqual(ones.cpu(), torch.full((3,), 2.0))


class DeathTest(RankTestCase):
    ranks = 3

    def test_survivors_are_told_who_died(self):
        self.init()
        tensor = torch.ones(4, device=self.device)
        pids = [None] * 3
        dist.all_gather_object(pids, os.getpid())
        others = dist.new_group([0, 1])
        if self.rank == 2:
            self.special_exit()
        with self.raises(dist.DistBackendError, "all_reduce", f"rank {self.rank}", "2"):
            for _ in range(2):
                work = dist.all_reduce(tensor, async_op=True)
                work.wait(datetime.timedelta(seconds=30))
        self.assertNotEqual(self.backend().get_error().name, "SUCCESS")
        alive = torch.ones(4, device=self.device)
        dist.all_reduce(alive, group=others)
        self.assertEqual(alive.cpu(), torch.full((4,), 2.0))

    def special_exit(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [0, 0, -signal.SIGKILL])


class DeathInASubgroupTest(RankTestCase):
    ranks = 3

    def test_the_global_ranks_are_told(self):
        self.init()
        group = dist.new_group([1, 2])
        pids = [None] * 3
        dist.all_gather_object(pids, os.getpid())
        if self.rank == 0:
            return
        dist.barrier(group)
        store = dist.group.WORLD.get_group_store()
        if self.rank == 2:
            store.wait(["waited"])
            os.kill(os.getpid(), signal.SIGKILL)
        told = "rank 0 of 2 (global rank 1)", "from 0 on are the global ranks 1, 2)"
        work = dist.all_reduce(torch.ones(1, device=self.device), group=group, async_op=True)
        late = f"is over, waiting for rank(s) 1 (pid {pids[2]}) whose last operation is barrier #1"
        with self.raises(dist.DistBackendError, late, *told):
            work.wait(datetime.timedelta(milliseconds=100))
        store.set("waited", "1")
        with self.raises(dist.DistBackendError, f"rank 1 (pid {pids[2]}) has died", *told):
            work.wait(datetime.timedelta(seconds=30))

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [0, 0, -signal.SIGKILL])


class DeathBeforeAMonitoredBarrierTest(RankTestCase):
    ranks = 4

    def test_it_is_told_at_once(self):
        self.init()
        store = dist.group.WORLD.get_group_store()
        if self.rank == 2:
            store.set("pid", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        told = f"rank 2 (pid {store.get('pid').decode()}) ended before it came"
        for rank_1_comes in (True, False):
            if self.rank != 1 or rank_1_comes:
                with self.raises(dist.DistBackendError, "monitored_barrier", "failed (", told):
                    self.backend().monitored_barrier(datetime.timedelta(seconds=200))
        store.set(f"over/{self.rank}", "1")
        store.wait([f"over/{rank}" for rank in (0, 1, 3)])

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [0, 0, -signal.SIGKILL, 0])


class MonitoredBarrierWithoutRank0Test(RankTestCase):
    ranks = 4

    def test_the_others_say_at_their_own_deadline_who_is_missing(self):
        self.init()
        store = dist.group.WORLD.get_group_store()
        if self.rank in (1, 3):
            with self.raises(dist.DistBackendError, "ranks 0, 2 did not come within 1000 ms"):
                self.backend().monitored_barrier(datetime.timedelta(seconds=1))
            store.set(f"over {self.rank}", "1")
        store.wait(["over 1", "over 3"])


class DeathInAStagedMessageTest(RankTestCase):
    def test_the_receiver_is_told(self):
        os.environ["OCCL_ALGO"] = "staged"  # read at the first use
        self.init()
        dist.barrier()
        pids = [None] * 2
        dist.all_gather_object(pids, os.getpid())
        tensor = torch.ones(1 << 27, dtype=torch.uint8, device=self.device)
        if self.rank == 1:
            dist.isend(tensor, 0)
            time.sleep(0.005)  # some of its 2,000 chunks have been taken
            os.kill(os.getpid(), signal.SIGKILL)
        with self.raises(dist.DistBackendError, "recv", f"1 (pid {pids[1]}) has died"):
            dist.irecv(tensor, 1).wait(datetime.timedelta(seconds=30))

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [0, -signal.SIGKILL])


class DeathOfAllTest(RankTestCase):
    ranks = 3

    def test_nothing_is_left_after_all_were_killed_in_a_collective(self):
        os.environ["TMPDIR"] = self.temporary_folder()
        self.init()
        tensor = torch.ones(1 << 20, device=self.device)
        pids = [None] * self.ranks
        dist.all_gather_object(pids, os.getpid())
        started = threading.Event()

        def kill_all():
            started.wait(60)
            for pid in [*pids[1:], pids[0]]:
                os.kill(pid, signal.SIGKILL)

        if self.rank == 0:
            threading.Thread(target=kill_all, daemon=True).start()
        for i in range(100_000):
            dist.all_reduce(tensor)
            if i == 3:
                started.set()

    # Both of these run in the test's own process, before the ranks start and after they ended.
    def _spawn_processes(self):
        os.mkdir(self.temporary_folder())
        self.shared_memory = set(os.listdir("/dev/shm"))
        super()._spawn_processes()

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [-signal.SIGKILL] * self.ranks)
        self.assertEqual(set(os.listdir("/dev/shm")) - self.shared_memory, set())
        os.rmdir(self.temporary_folder())  # an error if it is not empty

    def temporary_folder(self):
        return self.file_name + "-ranks"


class TimeoutTest(RankTestCase):
    def test_a_rank_that_does_not_come(self):
        self.init(timeout=datetime.timedelta(seconds=2))
        dist.barrier()
        store = dist.group.WORLD.get_group_store()
        if self.rank == 0:
            tensor = torch.ones(4, device=self.device)
            with self.raises(dist.DistBackendError, "all_reduce", "rank 0 of 2"):
                dist.all_reduce(tensor, async_op=True).wait(datetime.timedelta(seconds=30))
            store.set("done", "1")
        else:
            store.wait(["done"])

    def test_a_late_failure_is_raised_as_what_it_is(self):
        # wait() orders the stream; whoever reads what is behind it learns of the failure.
        self.init()
        store = dist.group.WORLD.get_group_store()
        readers = {
            "stream": lambda tensor, event: torch.openreg.current_stream().synchronize(),
            "event": lambda tensor, event: event.synchronize(),
            "device": lambda tensor, event: torch.openreg.synchronize(),
            "item": lambda tensor, event: tensor[0].item(),
            "cpu": lambda tensor, event: tensor.cpu(),
        }
        for name, read in readers.items():
            group = dist.new_group([0, 1], backend="occl")
            tensor = torch.ones(4, device=self.device)
            dist.all_reduce(tensor, group=group)
            self.assertEqual(tensor.tolist(), [2.0] * 4)
            if self.rank == 0:
                group.set_timeout(datetime.timedelta(milliseconds=300))
                dist.all_reduce(tensor, group=group, async_op=True).wait()
                event = torch.openreg.current_stream().record_event()
                with self.raises(dist.DistBackendError, "all_reduce", "timeout"):
                    read(tensor, event)
                torch.openreg.synchronize()  # it was told once
                store.set(name, "1")
            else:
                store.wait([name])

    def test_failures_of_several_streams_are_all_told(self):
        # The current stream waits for a side stream that fails, and has a failure of its own.
        self.init()
        first, second = (dist.new_group([0, 1]) for _ in range(2))
        tensor = torch.ones(4, device=self.device)
        for group in (first, second):
            dist.all_reduce(tensor, group=group)
        store = dist.group.WORLD.get_group_store()
        if self.rank == 0:
            for group in (first, second):
                group.set_timeout(datetime.timedelta(milliseconds=200))
            side = torch.openreg.Stream()
            side.wait_stream(torch.openreg.current_stream())
            with torch.openreg.stream(side):
                dist.all_reduce(tensor, group=second)
            torch.openreg.current_stream().wait_stream(side)
            dist.all_reduce(tensor, group=first)
            with self.raises(
                dist.DistBackendError,
                f"in group '{first.group_name}'",
                f"in group '{second.group_name}'",
            ):
                tensor.cpu()
            torch.openreg.synchronize()
            store.set("read", "1")
        else:
            store.wait(["read"])

    def test_a_barrier_that_fails_is_raised_once(self):
        self.init()
        tensor = torch.arange(4.0, device=self.device)
        group = dist.new_group([0, 1])
        dist.all_reduce(tensor, group=group)
        store = dist.group.WORLD.get_group_store()
        if self.rank == 0:
            group.set_timeout(datetime.timedelta(milliseconds=200))
            with self.raises(dist.DistBackendError, f"in group '{group.group_name}'"):
                dist.barrier(group)
            self.assertEqual(tensor.cpu(), 2 * torch.arange(4.0))
            torch.openreg.synchronize()
            store.set("read", "1")
        else:
            store.wait(["read"])
        again = torch.full((4,), self.rank + 1.0, device=self.device)
        dist.all_reduce(again)
        self.assertEqual(again[3].item(), 3)

    def test_a_failure_that_was_told_with_anothers_is_told_by_its_name_again(self):
        # Two streams fail; the error of one tells of both, and the other's is still to be raised:
        # by the device's synchronise, or on a stream that waits for it.
        self.init()
        tensor = torch.ones(4, device=self.device)
        groups = [dist.new_group([0, 1]) for _ in range(4)]
        for group in groups:
            dist.all_reduce(tensor, group=group)
        torch.openreg.synchronize()
        store = dist.group.WORLD.get_group_store()
        if self.rank == 0:
            waiting = torch.openreg.Stream()
            for (first, second), read in (
                (groups[:2], torch.openreg.synchronize),
                (groups[2:], waiting.synchronize),
            ):
                streams = torch.openreg.Stream(), torch.openreg.Stream()
                for stream, group in zip(streams, (first, second), strict=True):
                    group.set_timeout(datetime.timedelta(milliseconds=200))
                    with torch.openreg.stream(stream):
                        dist.all_reduce(torch.ones(4, device=self.device), group=group)
                waiting.wait_stream(streams[1])
                time.sleep(1)  # both have failed, if the machine lets them
                with self.raises(dist.DistBackendError, f"in group '{first.group_name}'"):
                    streams[0].synchronize()
                with self.raises(dist.DistBackendError, f"in group '{second.group_name}'"):
                    read()
                torch.openreg.synchronize()
            store.set("read", "1")
        else:
            store.wait(["read"])

    def test_waiting_has_a_timeout_of_its_own(self):
        self.init()
        dist.barrier()
        store = dist.group.WORLD.get_group_store()
        tensor = torch.ones(4, device=self.device)
        if self.rank == 0:
            work = dist.all_reduce(tensor, async_op=True)
            missed = "waiting for rank(s) 1 (pid "
            with self.raises(dist.DistBackendError, f"wait(timeout) of 200 ms is over, {missed}"):
                work.wait(datetime.timedelta(milliseconds=200))
            self.assertFalse(work.is_completed())
            store.set("waited", "1")
            work.wait(datetime.timedelta(seconds=30))
            self.assertTrue(work.is_success())
        else:
            store.wait(["waited"])
            dist.all_reduce(tensor)
        self.assertEqual(tensor.cpu(), torch.full((4,), 2.0))

    def test_monitored_barrier_names_the_missing(self):
        self.init()
        store = dist.group.WORLD.get_group_store()
        if self.rank == 0:
            with self.raises(dist.DistBackendError, "rank 1 did not come", ") runs"):
                self.backend().monitored_barrier(datetime.timedelta(seconds=1), True)
            store.set("over", "1")
        else:
            store.wait(["over"])
