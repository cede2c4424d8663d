"""new_group, split_group, shrink_group."""

import contextlib
import datetime
import os
import select
import signal
import time

import torch
import torch.distributed as dist
from harness import RankTestCase

_PATIENCE = datetime.timedelta(seconds=50)


class SubgroupTest(RankTestCase):
    ranks = 4

    def summed(self, group=None):
        tensor = torch.full((3,), self.rank + 1.0, device=self.device)
        dist.all_reduce(tensor, group=group)
        return tensor.cpu()[0].item()

    def test_new_groups_in_any_pattern(self):
        self.init()
        for members in ([0, 1], [1, 3], [0, 2, 3], [2], [3, 2, 1, 0]):
            group = dist.new_group(members)
            if self.rank in members:
                self.assertEqual(self.summed(group), sum(rank + 1 for rank in members))
            else:
                self.assertEqual(group, dist.GroupMember.NON_GROUP_MEMBER)
        self.assertEqual(self.summed(), 10)

    def test_ranks_that_leave_do_not_disturb_the_others(self):
        """They end without destroying their groups once their work is done, as programs do."""
        self.init()
        pair = dist.new_group([0, 1])
        pid = torch.tensor([os.getpid() if self.rank == 2 else 0], device=self.device)
        dist.all_reduce(pid)
        number = pid.item()
        if self.rank >= 2:
            return
        leaver = select.poll()
        leaver.register(os.pidfd_open(number), select.POLLIN)
        self.assertTrue(leaver.poll(60_000))
        for count in (5, 1 << 20):
            tensor = torch.full((count,), self.rank + 1.0, device=self.device)
            dist.all_reduce(tensor, group=pair)  # the first time, this is the group's first use
            self.assertEqual(tensor[-1].item(), 3)
            if self.rank == 0:
                dist.send(tensor + 1, 1)
            else:
                dist.recv(tensor, 0)
                self.assertEqual(tensor[-1].item(), 4)

    def test_a_group_of_gloo_beside_one_that_is_bound_to_a_device(self):
        self.init(device_id=self.device)
        group = dist.new_group(backend="gloo")
        tensor = torch.full((3,), self.rank + 1.0)
        dist.all_reduce(tensor, group=group)
        self.assertEqual(tensor.tolist(), [sum(range(1, self.world_size + 1))] * 3)
        found = [None] * self.world_size
        dist.all_gather_object(found, self.rank, group=group)
        self.assertEqual(found, list(range(self.world_size)))
        with self.raises(RuntimeError, "No backend type associated with device type openreg"):
            dist.all_reduce(tensor.to(self.device), group=group)

    def test_new_group_with_local_synchronisation(self):
        self.init(device_id=self.device)
        if self.rank in (1, 2):
            group = dist.new_group([1, 2], use_local_synchronization=True)
            self.assertEqual(self.summed(group), 5)
        self.assertEqual(self.summed(), 10)

    def test_split_group(self):
        self.init(device_id=self.device)
        halves = dist.split_group(split_ranks=[[0, 1], [2, 3]])
        self.assertEqual(self.summed(halves), 3 if self.rank < 2 else 7)
        self.assertEqual(halves.size(), 2)
        # Some ranks are in no part.
        inner = dist.split_group(split_ranks=[[1, 2]])
        if self.rank in (1, 2):
            self.assertEqual(self.summed(inner), 5)
            self.assertEqual(dist.get_process_group_ranks(inner), [1, 2])
        else:
            self.assertIsNone(inner)
        self.assertEqual(self.summed(), 10)

    def test_device_mesh(self):
        self.init(device_id=self.device)
        mesh = dist.init_device_mesh("openreg", (2, 2), mesh_dim_names=("dp", "tp"))
        self.assertEqual(self.summed(mesh.get_group("tp")), 3 if self.rank < 2 else 7)
        self.assertEqual(self.summed(mesh.get_group("dp")), 4 if self.rank % 2 == 0 else 6)


class DeathInTheWorldTest(RankTestCase):
    """Rank 2 dies in a world that is bound to a device; then the others make groups."""

    ranks = 3

    def survive(self, backend="occl"):
        """Returns on ranks 0 and 1, with the process of rank 2, which has ended."""
        self.init(backend, device_id=self.device)
        dist.all_reduce(torch.ones(4, device=self.device))
        store = dist.distributed_c10d._get_default_store()
        if self.rank == 2:
            store.set("pid", str(os.getpid()))
            store.wait(["watched by 0", "watched by 1"])
            os.kill(os.getpid(), signal.SIGKILL)
        pid = int(store.get("pid"))
        end = os.pidfd_open(pid)
        store.set(f"watched by {self.rank}", "")
        self.assertTrue(select.select([end], [], [], 60)[0])
        return pid

    def report(self, pid):
        """The world learns of it."""
        with self.raises(dist.DistBackendError, f"rank 2 (pid {pid})"):
            dist.all_reduce(torch.ones(4, device=self.device), async_op=True).wait(_PATIENCE)

    @contextlib.contextmanager
    def names_the_dead(self, pid):
        begin = time.monotonic()
        with self.raises(dist.DistBackendError, f"rank 2 (pid {pid})"):
            yield
        print(f"rank {self.rank} was told after {time.monotonic() - begin:.3f} s")

    def groups(self, pid):
        alive = dist.new_group([0, 1])
        ones = torch.ones(4, device=self.device)
        dist.all_reduce(ones, group=alive)
        self.assertEqual(ones.cpu(), torch.full((4,), 2.0))
        with self.names_the_dead(pid):
            dist.new_group([0, 1, 2])
        return alive

    def splits(self, pid):
        for members in ([0, 1], [0, 1, 2]):  # of all ranks of the world
            with self.names_the_dead(pid):
                dist.split_group(split_ranks=[members])

    def test_before_it_was_reported(self):
        pid = self.survive()
        self.groups(pid)
        self.splits(pid)

    def test_after_it_was_reported(self):
        pid = self.survive()
        self.report(pid)
        self.groups(pid)
        self.splits(pid)

    def test_with_gloo_beside(self):
        pid = self.survive("cpu:gloo,openreg:occl")
        alive = self.groups(pid)
        ones = torch.ones(4)
        dist.all_reduce(ones, group=alive)
        self.assertEqual(ones, torch.full((4,), 2.0))
        with self.names_the_dead(pid):
            dist.new_group([0, 1, 2], backend="gloo")

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [0, 0, -signal.SIGKILL])


class ShrinkTest(RankTestCase):
    ranks = 3

    def test_survivors_go_on_after_a_death(self):
        self.init(device_id=self.device)
        tensor = torch.ones(4, device=self.device)
        dist.all_reduce(tensor)
        dist.barrier()
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.assertRaises(dist.DistBackendError):
            for _ in range(2):
                dist.all_reduce(tensor, async_op=True).wait(self.deadline())
        group = dist.shrink_group([1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
        self.assertEqual(group.size(), 2)
        alive = torch.full((4,), self.rank + 1.0, device=self.device)
        dist.all_reduce(alive)
        self.assertEqual(alive.cpu(), torch.full((4,), 4.0))

    def deadline(self):
        import datetime

        return datetime.timedelta(seconds=30)

    def _check_return_codes(self, fn, elapsed_time):
        self.assertEqual([p.exitcode for p in self.processes], [0, -signal.SIGKILL, 0])
