"""After a caught death: what streams still hold of a group goes when the group is ended."""

import datetime
import os
import signal
import time

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch.distributed import distributed_c10d as c10d
from torch.distributed.fsdp import fully_shard
from torch_openreg import _C
from training import net, reference, same_parameters, sgd, train

PATIENCE = datetime.timedelta(seconds=60)
DEADLINE_S = 60.0


def end_by_shrinking(case, victim, size):
    dist.shrink_group([victim], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)


def end_by_aborting(case, victim, size):
    c10d._abort_process_group()
    case.init_again(size)


def end_by_destroying(case, victim, size):
    dist.destroy_process_group()
    case.init_again(size)


class RecoveryTestCase(RankTestCase):
    """The last rank dies, once or several times; the others end the group and go on."""

    ranks = 3

    def begin(self):
        self.store = dist.FileStore(self.file_name, -1)
        dist.init_process_group(
            "occl",
            store=self.store,
            rank=self.rank,
            world_size=self.ranks,
            timeout=PATIENCE,
            device_id=self.device,
        )
        dist.all_reduce(torch.ones(4, device=self.device))
        torch.openreg.synchronize()

    def init_again(self, size):
        dist.init_process_group(
            "occl",
            store=dist.PrefixStore(f"world of {size}", self.store),
            rank=self.rank,
            world_size=size,
            timeout=PATIENCE,
            device_id=self.device,
        )

    def ones(self):
        return torch.ones(4, device=self.device)

    def die_when_others_have(self, name):
        """On the last rank: dies once the others have said `name`. On the others: says it."""
        self.store.set(f"{name} {self.rank}", "1")
        if self.rank == self.ranks - 1:
            self.store.wait([f"{name} {rank}" for rank in range(self.ranks - 1)], PATIENCE)
            os.kill(os.getpid(), signal.SIGKILL)

    def all_reduce_on(self, stream, group=None):
        """Queued on `stream` of the survivors; the last rank takes part in none."""
        tensor = self.ones()
        stream.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(stream):
            if self.rank != self.ranks - 1:
                dist.all_reduce(tensor, group=group)
                tensor.add_(1)
        return tensor

    def await_failure(self, group=None):
        """Without raising it."""
        deadline = time.monotonic() + DEADLINE_S
        while self.backend(group).get_error().name == "SUCCESS":
            self.assertLess(time.monotonic(), deadline, "nothing has failed")
            time.sleep(0.001)

    def check_group(self, size, streams):
        """Collectives give the right values on all streams, and nothing is raised."""
        for stream in [torch.openreg.current_stream(), *streams]:
            with torch.openreg.stream(stream):
                tensor = torch.arange(4.0, device=self.device) + self.rank
                dist.all_reduce(tensor)
                expected = torch.arange(4.0) * size + sum(range(size))
                self.assertEqual(tensor.cpu(), expected)
                work = dist.all_reduce(tensor, async_op=True)
                work.wait()
                self.assertEqual(tensor.cpu(), size * expected)
            stream.synchronize()
        torch.openreg.synchronize()

    def _check_return_codes(self, fn, elapsed_time):
        codes = [process.exitcode for process in self.processes]
        self.assertEqual(codes, [0] * (self.ranks - 1) + [-signal.SIGKILL])


class SeveralStreamsTest(RecoveryTestCase):
    def go_on_after(self, end):
        self.begin()
        streams = [torch.openreg.Stream() for _ in range(4)]
        for stream in streams:
            self.all_reduce_on(stream)
        if self.rank != self.ranks - 1:
            dist.all_reduce(self.ones(), async_op=True).wait()
            torch.openreg.current_stream().wait_stream(streams[1])
        self.die_when_others_have("issued")
        with self.raises(dist.DistBackendError):
            streams[0].synchronize()
        end(self, self.ranks - 1, self.ranks - 1)
        self.check_group(self.ranks - 1, streams)
        dist.destroy_process_group()

    def test_shrinking(self):
        self.go_on_after(end_by_shrinking)

    def test_aborting_and_a_new_world(self):
        self.go_on_after(end_by_aborting)

    def test_destroying_and_a_new_world(self):
        self.go_on_after(end_by_destroying)


class HeldGroupsTest(RankTestCase):
    """Groups that are over, but held, tell nothing of a new world: its rank 0 was another's 1."""

    ranks = 3

    def init(self, store, rank, size):
        dist.init_process_group("occl", store=store, rank=rank, world_size=size, timeout=PATIENCE)

    def check_group_with_a_late_rank_0(self, group):
        if dist.get_rank() == 0:
            time.sleep(1)  # the other one looks for it several times
        tensor = torch.arange(3.0, device=self.device) + dist.get_rank()
        dist.all_reduce(tensor, group=group)
        self.assertEqual(tensor.tolist(), [1, 3, 5])

    def go_on_after(self, end):
        store = dist.FileStore(self.file_name, -1)
        self.init(store, self.rank, self.ranks)
        held = [dist.group.WORLD, dist.new_group([0, 1, 2]), dist.new_group([0, 2])]
        tensor = torch.ones(4, device=self.device)
        dist.all_reduce(tensor)
        torch.openreg.synchronize()
        if self.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.raises(dist.DistBackendError, "rank 0"):
            dist.all_reduce(tensor)
            torch.openreg.synchronize()
        end()
        self.init(dist.PrefixStore("again", store), self.rank - 1, 2)
        self.check_group_with_a_late_rank_0(None)
        self.check_group_with_a_late_rank_0(dist.new_group([0, 1]))
        dist.destroy_process_group()
        del held

    def _check_return_codes(self, fn, elapsed_time):
        codes = [process.exitcode for process in self.processes]
        self.assertEqual(codes, [-signal.SIGKILL, 0, 0])

    def test_destroyed(self):
        self.go_on_after(dist.destroy_process_group)

    def test_aborted(self):
        self.go_on_after(c10d._abort_process_group)


class LeavingForADeathTest(RankTestCase):
    """Rank 0 dies, rank 1 leaves for that, and the group has not been used before."""

    ranks = 3

    def test_the_death_is_told_as_well(self):
        self.init()
        meeting = dist.FileStore(self.file_name + "-meeting", -1)
        if self.rank == 0:
            meeting.set("pid", str(os.getpid()))
            meeting.wait(["made 1", "made 2"], PATIENCE)
            os.kill(os.getpid(), signal.SIGKILL)
        meeting.set(f"made {self.rank}", "1")
        pid = int(meeting.get("pid"))
        while os.path.exists(f"/proc/{pid}/exe"):  # not of a zombie
            time.sleep(0.001)
        if self.rank == 1:
            dist.destroy_process_group()
            meeting.set("left", "1")
        else:
            meeting.wait(["left"], PATIENCE)
            with self.raises(dist.DistBackendError, f"rank 0 (pid {pid}) ended before it came"):
                dist.all_reduce(torch.ones(3, device=self.device))
            os.remove(self.file_name + "-meeting")

    def _check_return_codes(self, fn, elapsed_time):
        codes = [process.exitcode for process in self.processes]
        self.assertEqual(codes, [-signal.SIGKILL, 0, 0])


class MonitoredBarrierTest(RecoveryTestCase):
    def test_it_tells_of_the_death(self):
        self.begin()
        stream = torch.openreg.Stream()
        self.all_reduce_on(stream)
        self.die_when_others_have("issued")
        self.await_failure()
        with self.raises(dist.DistBackendError, "rank 2"):
            self.backend().monitored_barrier(PATIENCE)
        end_by_shrinking(self, 2, 2)
        self.check_group(2, [stream])


class WhatStaysTest(RecoveryTestCase):
    """No error is lost for data that is wrong without the user having been told."""

    def test_what_was_never_told(self):
        self.begin()
        streams = [torch.openreg.Stream() for _ in range(3)]
        for stream in streams:
            self.all_reduce_on(stream)
        self.die_when_others_have("issued")
        self.await_failure()
        dist.destroy_process_group()
        with self.raises(dist.DistBackendError, "all_reduce", "in group '0'"):
            streams[1].synchronize()
        # Now it is told, and the group has been ended.
        for stream in streams:
            stream.synchronize()
        torch.openreg.synchronize()

    def test_failures_of_other_groups(self):
        self.begin()
        ended, other = (dist.new_group([0, 1, 2]) for _ in range(2))
        for group in (ended, other):
            dist.all_reduce(self.ones(), group=group)
        torch.openreg.synchronize()
        of_ended, of_other, of_both = (torch.openreg.Stream() for _ in range(3))
        self.all_reduce_on(of_ended, ended)
        self.all_reduce_on(of_both, ended)
        self.all_reduce_on(of_other, other)
        # Behind the failure of the one that is ended, the stream keeps no other.
        of_both.wait_stream(of_other)
        work = None
        if self.rank != self.ranks - 1:
            work = dist.all_reduce(self.ones(), group=ended, async_op=True)
        self.die_when_others_have("issued")
        with self.raises(dist.DistBackendError, f"in group '{ended.group_name}'"):
            work.wait(PATIENCE)
        self.await_failure(other)
        dist.destroy_process_group(ended)
        for stream in (of_both, of_other):
            with self.raises(dist.DistBackendError, f"in group '{other.group_name}'") as caught:
                stream.synchronize()
            self.assertNotIn(f"in group '{ended.group_name}'", str(caught.exception))
        of_ended.synchronize()
        torch.openreg.synchronize()

    def test_failures_of_kernels(self):
        self.begin()
        streams = [torch.openreg.Stream() for _ in range(2)]
        gates = []  # never opened
        for stream in streams:
            self.all_reduce_on(stream)
            if self.rank != self.ranks - 1:
                gates.append(_C._StreamGate(stream, 0.001))
        self.die_when_others_have("issued")
        self.await_failure()
        with self.raises(dist.DistBackendError):
            dist.all_reduce(self.ones())
        dist.destroy_process_group()
        for stream in streams:
            with self.raises(RuntimeError, "nobody opened the gate") as caught:
                stream.synchronize()
            self.assertNotIn("all_reduce", str(caught.exception))
        torch.openreg.synchronize()

    def test_what_a_message_of_another_group_waited_behind(self):
        self.begin()
        pair = dist.new_group([0, 1])
        tensors = [self.ones() for _ in range(2)]
        other = torch.openreg.Stream()

        def message(tensor):
            return (dist.irecv if self.rank else dist.isend)(tensor, 1 - self.rank, group=pair)

        first = None
        if self.rank != self.ranks - 1:
            dist.all_reduce(self.ones())
            first = message(tensors[0])
        self.die_when_others_have("issued")
        first.wait(PATIENCE)
        # Goes by the same stream, which the failure has reached as well.
        with torch.openreg.stream(other):
            message(tensors[1]).wait(PATIENCE)
        with self.raises(dist.DistBackendError, "all_reduce"):
            torch.openreg.current_stream().synchronize()

    def test_works_that_are_waited_for_later(self):
        self.begin()
        stream = torch.openreg.Stream()
        self.all_reduce_on(stream)
        over = gate = behind = None
        gated = torch.openreg.Stream()
        if self.rank != self.ranks - 1:
            over = dist.all_reduce(self.ones(), async_op=True)
            gate = _C._StreamGate(gated, DEADLINE_S)
            with torch.openreg.stream(gated):
                behind = dist.all_reduce(self.ones(), async_op=True)
        self.die_when_others_have("issued")
        with self.raises(dist.DistBackendError):
            stream.synchronize()
        self.backend().abort()
        with self.raises(dist.DistBackendError, "all_reduce"):
            over.wait(PATIENCE)
        # Not over yet: its failure is left on the stream that waits for it.
        waiting = torch.openreg.Stream()
        with torch.openreg.stream(waiting):
            behind.wait()
        gate.open()
        with self.raises(dist.DistBackendError, "all_reduce"):
            waiting.synchronize()
        torch.openreg.synchronize()


class TrainingTest(RecoveryTestCase):
    """FSDP2: in each round the last rank dies in a step."""

    ranks = 5
    rounds = 3

    def model(self):
        model = net().to(self.device)
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)

    def die_in(self, model, size):
        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        if size % 2 == 0:
            model.blocks[1].register_forward_hook(die)
        else:
            model.blocks[1].register_full_backward_hook(die)

    def train_on_after(self, end):
        self.begin()
        for size in range(self.ranks, self.ranks - self.rounds, -1):
            model = self.model()
            optimizer = sgd(model)
            train(model, optimizer, self.device, self.rank, steps=1)
            if self.rank == size - 1:
                self.die_in(model, size)
            with self.raises(dist.DistBackendError):
                for step in range(1, 1000):
                    train(model, optimizer, self.device, self.rank, steps=1, first=step)
            end(self, size - 1, size - 1)
            model = self.model()
            train(model, sgd(model), self.device, self.rank, steps=2)
            torch.openreg.synchronize()
            same_parameters(model, reference(size - 1, steps=2), 1e-5, self.device)
        dist.destroy_process_group()

    def test_shrinking(self):
        self.train_on_after(end_by_shrinking)

    def test_a_new_world(self):
        self.train_on_after(end_by_destroying)

    def test_aborting_and_a_new_world(self):
        self.train_on_after(end_by_aborting)

    def _check_return_codes(self, fn, elapsed_time):
        codes = [process.exitcode for process in self.processes]
        left = self.ranks - self.rounds
        self.assertEqual(codes, [0] * left + [-signal.SIGKILL] * self.rounds)
