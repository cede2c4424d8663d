"""send, recv, tags, any source, batches."""

import datetime

import torch
import torch.distributed as dist
from harness import RankTestCase, values
from torch_openreg import _C

WAIT = datetime.timedelta(seconds=30)


class PointToPointTest(RankTestCase):
    ranks = 3

    def init(self):
        super().init()
        dist.barrier()  # ranks meet at the first operation, and not every test uses all of them

    def zeros(self, count=4):
        return torch.zeros(count, device=self.device)

    def mine(self, count=4, start=1):
        return values(self.rank, count, start=start).to(self.device)

    def test_send_and_receive_around_a_ring(self):
        self.init()
        right, left = (self.rank + 1) % 3, (self.rank - 1) % 3
        for count in (0, 1, 13, 100_003):
            found = self.zeros(count)
            if self.rank % 2 == 0:
                dist.send(self.mine(count), right)
                self.assertEqual(dist.recv(found, left), left)
            else:
                dist.recv(found, left)
                dist.send(self.mine(count), right)
            self.assertEqual(found.cpu(), values(left, count))

    def test_single_messages_behind_a_batch_both_ways(self):
        self.init()
        if self.rank == 2:
            return
        peer = 1 - self.rank
        for count in (0, 1, 100_003):
            batched, found = self.zeros(count), [self.zeros(count) for _ in range(3)]
            sent = [self.mine(count, start) for start in (1, 2, 3, 4)]
            gate = _C._StreamGate(torch.openreg.current_stream(), 60.0)  # holds up the batch
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, sent[0], peer), dist.P2POp(dist.irecv, batched, peer)]
            )
            for tensor, output in zip(sent[1:], found, strict=True):
                works += [dist.isend(tensor, peer), dist.irecv(output, peer)]
            gate.open()
            for work in works:
                work.wait(WAIT)
            for output, start in zip([batched, *found], (1, 2, 3, 4), strict=True):
                self.assertEqual(output.cpu(), values(peer, count, start=start))

    def test_tags_match_in_any_order(self):
        self.init()
        if self.rank == 0:
            works = [dist.isend(self.mine(start=10 * tag), 1, tag=tag) for tag in range(5)]
        elif self.rank == 1:
            found = [self.zeros() for _ in range(5)]
            works = [dist.irecv(found[tag], 0, tag=tag) for tag in (3, 0, 4, 2, 1)]
        else:
            works = []
        for work in works:
            work.wait(WAIT)
            self.assertTrue(work.is_success())
        if self.rank == 1:
            for tag in range(5):
                self.assertEqual(found[tag].cpu(), values(0, 4, start=10 * tag))

    def test_a_hundred_tags_both_ways_in_the_opposite_order(self):
        # More than there are streams: no receive waits behind a send, as the peer's may as well.
        self.init()
        if self.rank > 1:
            return
        peer, tags = 1 - self.rank, range(100)
        found = [self.zeros() for _ in tags]
        works = [dist.isend(self.mine(start=tag % 50), peer, tag=tag) for tag in tags]
        works += [dist.irecv(found[tag], peer, tag=tag) for tag in reversed(tags)]
        for work in works:
            work.wait(WAIT)
        for tag in tags:
            self.assertEqual(found[tag].cpu(), values(peer, 4, start=tag % 50))

    def test_the_same_tag_is_first_in_first_out(self):
        self.init()
        if self.rank == 0:
            works = [dist.isend(self.mine(start=step), 2, tag=7) for step in range(20)]
        elif self.rank == 2:
            found = [self.zeros() for _ in range(20)]
            works = [dist.irecv(one, 0, tag=7) for one in found]
        else:
            works = []
        for work in works:
            work.wait(WAIT)
        if self.rank == 2:
            for step, one in enumerate(found):
                self.assertEqual(one.cpu(), values(0, 4, start=step))

    def test_receive_from_any_source(self):
        self.init()
        if self.rank == 0:
            senders = set()
            for _ in range(2):
                found = self.zeros()
                sender = dist.recv(found)
                self.assertEqual(found.cpu(), values(sender, 4))
                senders.add(sender)
            self.assertEqual(senders, {1, 2})
        else:
            dist.send(self.mine(), 0)

    def test_batches_in_any_order(self):
        self.init()
        others = [rank for rank in range(3) if rank != self.rank]
        found = {rank: self.zeros() for rank in others}
        ops = [dist.P2POp(dist.isend, self.mine(), rank) for rank in others]
        ops += [dist.P2POp(dist.irecv, found[rank], rank) for rank in others]
        if self.rank == 1:
            ops.reverse()
        for work in dist.batch_isend_irecv(ops):
            work.wait(WAIT)
        for rank in others:
            self.assertEqual(found[rank].cpu(), values(rank, 4))

    def test_a_matched_pair_of_a_batch_completes_though_another_is_not_matched(self):
        self.init()
        apart = dist.new_group([0, 1])
        dist.barrier()
        found = self.zeros()
        if self.rank == 0:
            unmatched = self.zeros()
            dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, self.mine(), 1), dist.P2POp(dist.irecv, unmatched, 1)]
            )
        if self.rank == 1:
            dist.irecv(found, 0).wait(WAIT)
            self.assertEqual(found.cpu(), values(0, 4))
        if self.rank < 2:
            dist.barrier(apart)
        if self.rank == 1:
            dist.send(self.mine(), 0)
        dist.barrier()

    def test_sends_do_not_queue_behind_collectives(self):
        self.init()
        dist.barrier()
        summed = torch.ones(4, device=self.device)
        found = self.zeros()
        # Rank 2 joins the collective only after it has the message that rank 0 sends behind it.
        if self.rank == 2:
            dist.irecv(found, 0).wait(WAIT)
            self.assertEqual(found.cpu(), values(0, 4))
        work = dist.all_reduce(summed, async_op=True)
        if self.rank == 0:
            dist.isend(self.mine(), 2).wait(WAIT)
        work.wait(WAIT)
        self.assertEqual(summed.cpu(), torch.full((4,), 3.0))

    def test_objects(self):
        self.init()
        if self.rank == 0:
            dist.send_object_list([{"a": 1}, "text"], dst=1)
        elif self.rank == 1:
            found = [None, None]
            dist.recv_object_list(found, src=0)
            self.assertEqual(found, [{"a": 1}, "text"])
