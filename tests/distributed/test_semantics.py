"""Streams, futures and Works: what runs when, and who holds the memory."""

import datetime
import gc
import pickle
import time

import torch
import torch.distributed as dist
from harness import RankTestCase, read_by_torchs_tool
from torch_openreg.distributed import dump_flight_recorder, reset_flight_recorder

WAIT = datetime.timedelta(seconds=30)


class SemanticsTest(RankTestCase):
    def ones(self, count=4):
        return torch.full((count,), self.rank + 1.0, device=self.device)

    def test_asynchronous_calls_do_not_wait_for_late_peers(self):
        self.init()
        dist.barrier()
        store = dist.group.WORLD.get_group_store()
        tensor = self.ones()
        if self.rank == 0:
            work = dist.all_reduce(tensor, async_op=True)
            self.assertFalse(work.is_completed())
            work.wait()  # orders the stream and returns
            doubled = torch.empty_like(tensor)
            doubled.copy_(tensor)
            store.set("issued", "1")
            self.assertEqual(doubled.cpu(), torch.full((4,), 3.0))
            self.assertTrue(work.is_completed())
            self.assertTrue(work.is_success())
        else:
            store.wait(["issued"])
            dist.all_reduce(tensor)
        self.assertEqual(tensor.cpu(), torch.full((4,), 3.0))

    def test_blocking_calls_do_not_block_the_host(self):
        self.init()
        dist.barrier()
        store = dist.group.WORLD.get_group_store()
        tensor = self.ones()
        if self.rank == 1:
            store.wait(["issued"])
        dist.all_reduce(tensor)
        if self.rank == 0:
            store.set("issued", "1")
        self.assertEqual(tensor.cpu(), torch.full((4,), 3.0))

    def test_what_two_streams_and_two_ranks_order_legally_does_not_deadlock(self):
        # On each rank the host issues what needs the peer's message before it sends its own.
        self.init()
        peer = 1 - self.rank
        for form in ("new", "in place"):
            receiving, sending = torch.openreg.Stream(), torch.openreg.Stream()
            received, sent = torch.zeros(4, device=self.device), self.ones()
            torch.openreg.synchronize()
            with torch.openreg.stream(receiving):
                dist.irecv(received, peer).wait()
                result = received + 1 if form == "new" else received.add_(1)
                result = result * 2 if form == "new" else result.mul_(2)
            with torch.openreg.stream(sending):
                dist.isend(sent, peer).wait()
            receiving.synchronize()
            sending.synchronize()
            self.assertEqual(result.cpu(), torch.full((4,), (peer + 2.0) * 2))

    def test_an_operation_starts_after_what_is_queued_on_the_current_stream(self):
        self.init()
        side = torch.openreg.Stream()
        for _ in range(20):
            with torch.openreg.stream(side):
                tensor = torch.zeros(1000, device=self.device)
                for _ in range(5):
                    tensor.add_(self.rank + 1.0)
                work = dist.all_reduce(tensor, async_op=True)
                work.wait()
                tensor.mul_(2)
            side.synchronize()
            self.assertEqual(tensor.cpu(), torch.full((1000,), 30.0))

    def test_works_that_are_dropped_neither_leak_nor_free_early(self):
        self.init()
        for step in range(30):
            tensors = [self.ones(5000 + step) for _ in range(4)]
            for tensor in tensors:
                dist.all_reduce(tensor, async_op=True)
            del tensor, tensors
            # Memory that was freed too soon would be overwritten while it is read.
            torch.full((5000 + step,), -1.0, device=self.device)
        dist.barrier()
        torch.openreg.synchronize()
        gc.collect()
        torch.zeros(1, device=self.device)
        self.assertLess(torch.openreg.memory_allocated(), 1 << 20)

    def test_future_is_complete_and_ordered(self):
        self.init()
        tensor = self.ones()
        future = dist.all_reduce(tensor, async_op=True).get_future()
        tripled = future.then(lambda done: done.value()[0] * 3)
        self.assertEqual(tripled.wait().cpu(), torch.full((4,), 9.0))
        value = future.wait()
        self.assertEqual(len(value), 1)
        self.assertEqual(value[0].cpu(), torch.full((4,), 3.0))

    def test_future_of_the_result(self):
        self.init()
        work = dist.all_reduce(self.ones(), async_op=True)
        self.assertEqual(work.get_future_result().wait(), 0)

    def test_the_rest_of_work(self):
        self.init()
        tensor = self.ones()
        work = dist.all_reduce(tensor, async_op=True)
        work.synchronize()
        work.block_current_stream()
        self.assertTrue(work.wait(WAIT))
        self.assertIsNone(work.exception())
        self.assertEqual([t.data_ptr() for t in work.result()], [tensor.data_ptr()])
        self.assertGreaterEqual(work._get_duration(), 0)

    def test_completion_hooks(self):
        self.init()
        seen = []
        self.backend()._register_on_completion_hook(lambda info: seen.append(info))
        for _ in range(3):
            dist.all_reduce(self.ones())
        self.backend()._wait_for_pending_works()
        self.assertEqual([info.seq for info in seen], [1, 2, 3])
        self.assertEqual({str(info.op_type) for info in seen}, {"OpType.ALLREDUCE"})

    def test_timeout_of_the_group(self):
        self.init()
        dist.group.WORLD.set_timeout(datetime.timedelta(seconds=3))
        self.assertEqual(self.backend().options._timeout, datetime.timedelta(seconds=3))

    def test_profiler_sees_the_operations(self):
        self.init()
        dist.barrier()
        with torch.profiler.profile(record_shapes=True) as profile:
            dist.all_reduce(self.ones())
        names = [event.name for event in profile.events()]
        self.assertIn("record_param_comms", names)
        self.assertIn("occl:all_reduce", names)

    def test_interpreter_exit_with_work_in_flight(self):
        self.init()
        for _ in range(5):
            dist.all_reduce(self.ones(100_000), async_op=True)

    def test_abort_releases_the_other_rank(self):
        self.init()
        dist.barrier()
        store = dist.group.WORLD.get_group_store()
        if self.rank == 0:
            work = dist.all_reduce(self.ones(), async_op=True)
            store.set("issued", "1")
            with self.assertRaises(dist.DistBackendError):
                work.wait(WAIT)
        else:
            store.wait(["issued"])
            self.backend().abort()
            with self.raises(dist.DistBackendError, "aborted"):
                dist.all_reduce(self.ones())

    def test_detail_debugging(self):
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        self.init()
        tensor = self.ones()
        dist.all_reduce(tensor)
        found = [torch.zeros(4, device=self.device) for _ in range(2)]
        dist.all_gather(found, self.ones())
        dist.barrier()
        self.assertEqual(tensor.cpu(), torch.full((4,), 3.0))
        with self.raises(RuntimeError, "collective"):
            dist.all_reduce(torch.zeros(2 + self.rank, device=self.device))
        dist.set_debug_level(dist.DebugLevel.OFF)


class FlightRecorderTest(RankTestCase):
    def test_torchs_tool_reads_the_dumps(self):
        reset_flight_recorder()
        self.init()
        tensor = torch.ones(3, device=self.device)
        dist.all_reduce(tensor)
        whole = torch.zeros(6, device=self.device)
        dist.all_gather_single(whole, tensor)
        if self.rank == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
        dist.barrier()
        torch.openreg.synchronize()
        dump = pickle.loads(dump_flight_recorder())
        mine = [entry for entry in dump["entries"] if entry["process_group"][0] == "0"]
        self.assertEqual(
            [entry["profiling_name"].split(" ")[0] for entry in mine],
            [
                "nccl:all_reduce",
                "nccl:_all_gather_base",
                "nccl:send" if self.rank == 0 else "nccl:recv",
                "nccl:barrier",
            ],
        )
        self.assertEqual({entry["state"] for entry in mine}, {"completed"})
        self.assertEqual(mine[0]["input_sizes"], [[3]])
        self.assertEqual(mine[1]["output_sizes"], [[6]])
        self.assertEqual(mine[0]["input_dtypes"], ["Float"])

        dumps = [None, None]
        dist.all_gather_object(dumps, dump)
        database = read_by_torchs_tool(dumps)
        self.assertTrue(database.collectives)
        self.assertTrue(all(one.pass_check for one in database.collectives))


class DestroyTest(RankTestCase):
    def test_destroy_with_work_that_nobody_answers(self):
        self.init()
        dist.barrier()
        unmatched = torch.zeros(4, device=self.device)
        dist.irecv(unmatched, 1 - self.rank, tag=9)
        dist.destroy_process_group()
        self.assertFalse(dist.is_initialized())

    def test_making_and_destroying_groups_leaves_nothing(self):
        import os

        def counts():
            with open("/proc/self/maps") as maps:
                lines = len(maps.readlines())
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), lines

        self.init()
        tensor = torch.ones(4, device=self.device)

        def round_trip(late=None):
            group = dist.new_group([0, 1])
            time.sleep(0.05 if self.rank == late else 0)
            dist.all_reduce(tensor, group=group, async_op=True).wait()
            torch.openreg.synchronize()
            time.sleep(0.05 if self.rank == late else 0)
            dist.barrier(group)
            dist.destroy_process_group(group)

        # A stream starts its worker when it first needs one, here because the other rank is late.
        for i in range(6):
            round_trip(late=i % 2)
        before = counts()
        for _ in range(20):
            round_trip()
        after = counts()
        self.assertLessEqual(after[0], before[0] + 1)
        self.assertLessEqual(after[1], before[1] + 1)
        # Heaps grow by a few mappings, by more where the sanitizer keeps notes.
        few = 10 if torch.openreg.sanitizer.is_enabled() else 4
        self.assertLessEqual(after[2], before[2] + few)
