"""Ranks that mean different members by one group: those concerned hear of it at once."""

import time

import torch
import torch.distributed as dist
from harness import OPERATION_TIMEOUT, RankTestCase
from torch.testing._internal.common_utils import run_tests


class MembersTest(RankTestCase):
    ranks = 3

    def tensor(self):
        return torch.arange(5.0, device=self.device) + 10 * self.rank

    def all_reduce(self, group):
        tensor = self.tensor()
        dist.all_reduce(tensor, group=group)
        return tensor

    def assert_sum_of(self, ranks, group):
        expected = sum(torch.arange(5.0) + 10 * rank for rank in ranks)
        self.assertEqual(self.all_reduce(group).cpu(), expected)

    def group_of(self, *lists):
        """A group of the members that this rank means: rank r those of lists[r]."""
        group = dist.new_group(lists[self.rank], sort_ranks=False)
        return None if group == dist.GroupMember.NON_GROUP_MEMBER else group

    def fails(self, *lists):
        shown = [",".join(map(str, members)) for members in lists]
        return self.raises(dist.DistBackendError, *shown, "disagree")

    def end(self):
        """The other groups go on."""
        self.assert_sum_of(range(3), dist.group.WORLD)

    def test_each_of_two_is_the_first(self):
        self.init()
        group = self.group_of([0, 1], [1, 0], [0, 1])
        if group:
            with self.fails([0, 1], [1, 0]):
                self.all_reduce(group)
        self.end()

    def test_one_of_three_has_another_order(self):
        self.init()
        group = self.group_of([0, 1, 2], [0, 1, 2], [1, 0, 2])
        with self.fails([0, 1, 2], [1, 0, 2]):
            self.all_reduce(group)
        self.end()

    def test_messages_among_ranks_in_different_orders(self):
        self.init()
        group = self.group_of([0, 1, 2], [0, 1, 2], [1, 0, 2])
        with self.fails([0, 1, 2], [1, 0, 2]):
            if self.rank == 2:
                dist.isend(self.tensor(), 0, group).wait()  # rank 1, as the others see it
            else:
                dist.irecv(self.tensor(), 2, group).wait()
            torch.openreg.synchronize()
        self.end()

    def test_other_members(self):
        self.init()
        group = self.group_of([0, 1], [1, 2], [1, 2])
        if self.rank == 0:
            with self.fails([0, 1], [1, 2]):
                self.all_reduce(group)
        else:
            self.assert_sum_of([1, 2], group)
        self.end()

    def test_a_message_to_other_members(self):
        self.init()
        group = self.group_of([0, 1], [1, 2], [1, 2])
        if self.rank == 0:
            with self.raises(dist.DistBackendError, "0,1", "1,2"):
                dist.irecv(self.tensor(), 1, group).wait()
                torch.openreg.synchronize()
        self.end()

    def test_barriers_of_other_members(self):
        self.init()
        group = self.group_of([0, 1], [1, 2, 0], [0, 1, 2])
        if self.rank == 0:
            with self.fails([0, 1], [1, 2, 0]):
                self.backend(group).monitored_barrier(OPERATION_TIMEOUT)
            with self.fails([0, 1], [1, 2, 0]):
                dist.barrier(group)
        self.end()

    def test_the_sum_of_groups_that_all_order_alike(self):
        self.init()
        self.assert_sum_of(range(3), self.group_of(*[[2, 0, 1]] * 3))
        if self.rank != 1:
            self.assert_sum_of([0, 2], dist.new_group([2, 0], sort_ranks=False))
        else:
            dist.new_group([2, 0], sort_ranks=False)
        self.end()

    def test_later_worlds_in_one_store_group_their_ranks_otherwise(self):
        store = dist.FileStore(self.file_name, self.world_size)
        for members in ([0, 1], [1, 2], [0, 1, 2], [1, 2], [2, 1], [0, 2]):
            dist.init_process_group("occl", store=store, rank=self.rank, world_size=3)
            group = self.group_of(*[members] * 3)
            if group:
                self.assert_sum_of(members, group)
            self.end()
            dist.destroy_process_group()

    def test_what_another_world_has_left_is_no_mismatch(self):
        store = dist.FileStore(self.file_name, self.world_size)
        for number, (size, members) in enumerate([(2, [0, 1]), (3, [1, 2]), (3, [1, 2, 0])]):
            if self.rank >= size:
                continue
            if number == 2 and self.rank < 2:
                time.sleep(1)  # rank 2 looks for the others before they come
            dist.init_process_group("occl", store=store, rank=self.rank, world_size=size)
            group = self.group_of(*[members] * 3)
            if group:
                self.assert_sum_of(members, group)
            dist.destroy_process_group()

    def test_a_split_into_other_ranks(self):
        self.init(device_id=self.device)
        self.end()
        splits = [[[0, 1], [2]], [[0], [1, 2]], [[0], [1, 2]]][self.rank]
        if self.rank == 0:
            with self.fails([0, 1]):
                dist.split_group(split_ranks=splits)
        else:
            self.assert_sum_of([1, 2], dist.split_group(split_ranks=splits))
        self.end()


if __name__ == "__main__":
    run_tests()
