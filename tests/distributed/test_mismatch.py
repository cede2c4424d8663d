"""Ranks that call different operations all get an error at once, for every pair of operations.

What programs may legally mix, messages and collectives, ends at the deadline with both sides named.
"""

import datetime
import functools
import itertools

import torch
import torch.distributed as dist
from harness import RankTestCase

LONG = datetime.timedelta(seconds=60)
SHORT = datetime.timedelta(seconds=1)
COUNT = 6


class Operations:
    """The operations of two ranks, each on COUNT elements."""

    def __init__(self, group, device, rank):
        self.group, self.device, self.rank = group, device, rank

    def tensor(self, count=COUNT):
        return torch.ones(count, device=self.device)

    def halves(self):
        return list(self.tensor().chunk(2))

    def all_reduce(self):
        return dist.all_reduce(self.tensor(), group=self.group, async_op=True)

    def broadcast(self):
        return dist.broadcast(self.tensor(), 0, self.group, async_op=True)

    def reduce(self):
        return dist.reduce(self.tensor(), 0, group=self.group, async_op=True)

    def all_gather(self):
        outputs = [self.tensor(), self.tensor()]
        return dist.all_gather(outputs, self.tensor(), self.group, async_op=True)

    def reduce_scatter(self):
        return dist.reduce_scatter(
            self.tensor(COUNT // 2), self.halves(), group=self.group, async_op=True
        )

    def gather(self):
        outputs = [self.tensor(), self.tensor()] if self.rank == 0 else None
        return dist.gather(self.tensor(), outputs, 0, self.group, async_op=True)

    def scatter(self):
        inputs = [self.tensor(), self.tensor()] if self.rank == 0 else None
        return dist.scatter(self.tensor(), inputs, 0, self.group, async_op=True)

    def all_to_all_single(self):
        return dist.all_to_all_single(self.tensor(), self.tensor(), group=self.group, async_op=True)

    def all_to_all_with_splits(self, receives, sends):
        output, tensor = self.tensor(sum(receives)), self.tensor(sum(sends))
        return dist.all_to_all_single(
            output, tensor, receives, sends, group=self.group, async_op=True
        )

    def barrier(self):
        return dist.barrier(self.group, async_op=True)

    def send(self):
        return dist.isend(self.tensor(), 1 - self.rank, self.group)

    def recv(self):
        return dist.irecv(self.tensor(), 1 - self.rank, self.group)


# Of the same bytes. torch.distributed itself hands complex tensors on as real ones in most calls:
# the calls of the tests below are those that do not.
SAME_BYTES = [
    (torch.complex32, torch.float16),
    (torch.complex32, torch.int32),
    (torch.complex32, torch.complex64),
    (torch.complex64, torch.float32),
    (torch.complex64, torch.float64),
    (torch.complex64, torch.complex128),
    (torch.complex128, torch.float64),
    (torch.float16, torch.bfloat16),
    (torch.int16, torch.uint16),
    (torch.int32, torch.uint32),
    (torch.int64, torch.uint64),
    (torch.int8, torch.uint8),
    (torch.bool, torch.uint8),
]
SAME_BYTES_MOVED = [
    *itertools.combinations(
        (
            torch.float8_e4m3fn,
            torch.float8_e5m2,
            torch.float8_e4m3fnuz,
            torch.float8_e5m2fnuz,
            torch.float8_e8m0fnu,
            torch.float4_e2m1fn_x2,
            torch.bits8,
        ),
        2,
    ),
    (torch.float8_e8m0fnu, torch.uint8),
    (torch.bits8, torch.uint8),
]

COLLECTIVES = [
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "gather",
    "scatter",
    "all_to_all_single",
    "barrier",
]


class MismatchTest(RankTestCase):
    def both(self, timeout=LONG):
        group = dist.new_group([0, 1], timeout=timeout)
        return Operations(group, self.device, self.rank)

    def fails(self, call, *fragments):
        """The call, or what waits for it, raises an error that holds these texts."""
        with self.assertRaises(dist.DistBackendError) as caught:
            work = call()
            if work is not None:
                work.wait(LONG)
            torch.openreg.synchronize()
        for fragment in fragments:
            self.assertIn(fragment, str(caught.exception))
        return str(caught.exception)

    def test_every_pair_of_collectives(self):
        self.init()
        for pair in itertools.permutations(COLLECTIVES, 2):
            operations = self.both()
            message = self.fails(getattr(operations, pair[self.rank]), "disagree")
            self.assertNotIn("timed out", message)
            for name in pair:
                self.assertIn(name.removesuffix("_single"), message, f"{pair}: {message}")

    def test_splits_that_do_not_fit(self):
        self.init()
        for splits in ([[2, 3], [3, 2]], [[2, 2], [3, 2]], [[0, 1], [0, 1]]):
            # Rank 0 sends splits[0][1] elements to rank 1, which expects one more.
            operations = self.both()
            own = splits[self.rank]
            receives = [splits[peer][self.rank] for peer in range(2)]
            if self.rank == 1:
                receives[0] += 1
            self.fails(
                functools.partial(operations.all_to_all_with_splits, receives, own),
                "disagree",
                f"{splits[0][1]}",
                f"{splits[0][1] + 1}",
            )

    def test_messages_that_do_not_fit(self):
        self.init()
        for count, dtype, fragments in (
            (COUNT + 1, torch.float32, ("count", "6", "7")),
            (COUNT, torch.float64, ("datatype", "float32", "float64")),
            (COUNT, torch.int32, ("datatype", "float32", "int32")),
        ):
            operations = self.both()
            if self.rank == 0:
                self.fails(operations.send, "disagree", *fragments)
            else:
                wrong = torch.ones(count, dtype=dtype, device=self.device)
                call = functools.partial(dist.irecv, wrong, 0, operations.group)
                self.fails(call, "disagree", *fragments)

    def bytes_as(self, dtype):
        return torch.zeros(32, dtype=torch.uint8).view(dtype).to(self.device)

    def disagree_about_the_datatype(self, pair, call):
        group, tensor = self.both().group, self.bytes_as(pair[self.rank])
        message = self.fails(functools.partial(call, tensor, group), "disagree", "datatype")
        self.assertNotIn("timed out", message)

    def test_the_same_bytes_of_another_dtype_are_not_reduced(self):
        self.init()
        for pair in SAME_BYTES:
            for call in (
                lambda tensor, group: dist.reduce(tensor, 0, group=group, async_op=True),
                lambda tensor, group: group.allreduce([tensor]),
                lambda tensor, group: dist.reduce_scatter(
                    self.bytes_as(tensor.dtype), [tensor, tensor], group=group, async_op=True
                ),
            ):
                self.disagree_about_the_datatype(pair, call)

    def test_the_same_bytes_of_another_dtype_are_not_moved(self):
        self.init()

        def gather(tensor, group):
            outputs = [self.bytes_as(tensor.dtype) for _ in range(2)] if self.rank == 0 else None
            return dist.gather(tensor, outputs, 0, group, async_op=True)

        def message(tensor, group):
            call = group.send if self.rank == 0 else group.recv
            return call([tensor], 1 - self.rank, 0)

        for pair in (*SAME_BYTES, *SAME_BYTES_MOVED):
            for call in (gather, message, lambda tensor, group: group.broadcast(tensor, 0)):
                self.disagree_about_the_datatype(pair, call)

    def test_a_message_that_meets_a_collective_ends_at_the_deadline(self):
        self.init()
        for message, collective in itertools.product(
            ("send", "recv"), ("all_reduce", "all_gather", "barrier")
        ):
            operations = self.both(SHORT)
            operations.all_reduce().wait(LONG)  # the ranks have met: else init is what times out
            dist.barrier()
            name = (message, collective)[self.rank]
            self.fails(getattr(operations, name), "timed out", message, collective)

    def test_one_of_three_groups_goes_wrong(self):
        self.init()
        good, bad = self.both(), self.both()
        good.all_reduce().wait(LONG)
        self.fails(bad.all_gather if self.rank == 0 else bad.reduce_scatter, "disagree")
        for operations in (good, self.both()):
            operations.all_reduce().wait(LONG)
        dist.barrier()
