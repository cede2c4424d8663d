"""Every collective gives the right values: for each dtype, operation, size and root."""

import datetime

import oracle
import torch
import torch.distributed as dist
from harness import RankTestCase, values


class CollectivesTest(RankTestCase):
    """On two ranks; the subclasses below repeat it on three and four."""

    def mine(self, count, dtype=torch.float32):
        return self.of(self.rank, count, dtype)

    def of(self, rank, count, dtype=torch.float32):
        if dtype in oracle.FLOAT8:
            return values(rank, count).to(torch.uint8).view(dtype)
        if dtype in oracle.UNSIGNED:
            return values(rank, count, torch.int64).to(dtype)
        return values(rank, count, dtype)

    def everyones(self, count, dtype=torch.float32):
        return [self.of(rank, count, dtype) for rank in range(self.world_size)]

    def on_device(self, tensor):
        if tensor.dtype in oracle.FLOAT8:
            return tensor.view(torch.uint8).to(self.device).view(tensor.dtype)
        return tensor.to(self.device)

    def same(self, found, expected, *what):
        self.assertEqual(found.shape, expected.shape, msg=str(what))
        bits, right = oracle.as_bytes(found), oracle.as_bytes(expected)
        if not torch.equal(bits, right):
            first = int((bits != right).nonzero()[0]) // found.element_size()
            element = (found.cpu().reshape(-1)[first], expected.reshape(-1)[first])
            self.fail(f"{what}: element {first} is {element[0]}, expected {element[1]}")

    def test_all_reduce_of_every_dtype_and_operation(self):
        self.init()
        for dtype in [
            *oracle.FLOATS,
            *oracle.INTEGERS,
            *oracle.UNSIGNED,
            *oracle.COMPLEX,
            torch.bool,
        ]:
            for op in oracle.operations_of(dtype):
                if dtype.is_complex and op == "PRODUCT":
                    continue  # torch.distributed refuses it: see the test of the backend object
                tensor = self.on_device(self.mine(19, dtype))
                dist.all_reduce(tensor, oracle.operation(op))
                self.same(tensor, oracle.reduced(self.everyones(19, dtype), op), dtype, op)

    def test_all_reduce_of_every_size(self):
        self.init()
        for count in oracle.sizes_for(self.world_size):
            tensor = self.on_device(self.mine(count))
            dist.all_reduce(tensor)
            self.same(tensor, oracle.reduced(self.everyones(count)), count)

    def test_premultiplied_sum(self):
        self.init()
        for dtype in oracle.FLOATS:
            for factor in (0.5, torch.tensor(0.25)):
                tensor = self.on_device(self.mine(11, dtype))
                dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
                scaled = [x.float() * float(factor) for x in self.everyones(11, dtype)]
                self.same(tensor, oracle.reduced(scaled).to(dtype), dtype, factor)

    def test_premultiplied_sum_of_complex_numbers(self):
        self.init()
        for dtype in oracle.COMPLEX:
            part = torch.empty(5, dtype=dtype, device=self.device)
            whole = self.on_device(self.mine(5 * self.world_size, dtype))
            dist.reduce_scatter_single(part, whole, dist._make_nccl_premul_sum(0.5))
            wide = [x.to(torch.complex128) / 2 for x in self.everyones(5 * self.world_size, dtype)]
            expected = oracle.reduced(wide).to(dtype)
            self.same(part, expected[5 * self.rank : 5 * self.rank + 5], dtype)

    def test_broadcast_of_every_dtype_size_and_root(self):
        self.init()
        for root in range(self.world_size):
            for dtype in oracle.MOVED:
                tensor = self.on_device(self.mine(23, dtype))
                dist.broadcast(tensor, root)
                self.same(tensor, self.of(root, 23, dtype), root, dtype)
            for count in oracle.sizes_for(self.world_size):
                tensor = self.on_device(self.mine(count))
                dist.broadcast(tensor, root)
                self.same(tensor, self.of(root, count), root, count)

    def test_reduce_leaves_the_others_alone(self):
        self.init()
        for root in range(self.world_size):
            for count in oracle.sizes_for(self.world_size):
                tensor = self.on_device(self.mine(count))
                dist.reduce(tensor, root)
                everyones = self.everyones(count)
                expected = oracle.reduced(everyones) if root == self.rank else everyones[self.rank]
                self.same(tensor, expected, root, count)

    def test_all_gather_of_lists(self):
        self.init()
        for dtype in oracle.MOVED:
            found = [
                self.on_device(
                    torch.zeros(9, dtype=torch.uint8).to(torch.float32).to(dtype)
                    if dtype not in oracle.FLOAT8
                    else torch.zeros(9, dtype=torch.uint8).view(dtype)
                )
                for _ in range(self.world_size)
            ]
            dist.all_gather(found, self.on_device(self.mine(9, dtype)))
            for rank, tensor in enumerate(found):
                self.same(tensor, self.of(rank, 9, dtype), dtype)

    def test_all_gather_of_uneven_lists(self):
        self.init()
        counts = [3 * rank + (rank + 1) % 2 for rank in range(self.world_size)]
        found = [torch.zeros(count, device=self.device) for count in counts]
        dist.all_gather(found, self.on_device(self.mine(counts[self.rank])))
        for rank, tensor in enumerate(found):
            self.same(tensor, self.of(rank, counts[rank]))

    def test_all_gather_into_one_tensor(self):
        self.init()
        for count in oracle.sizes_for(self.world_size):
            whole = torch.zeros(count * self.world_size, device=self.device)
            dist.all_gather_single(whole, self.on_device(self.mine(count)))
            self.same(whole, torch.cat(self.everyones(count)), count)
        # The input is this rank's part of the output.
        whole = torch.zeros(5 * self.world_size, device=self.device)
        part = whole[5 * self.rank : 5 * self.rank + 5]
        part.copy_(self.mine(5))
        dist.all_gather_single(whole, part)
        self.same(whole, torch.cat(self.everyones(5)))

    def test_reduce_scatter_of_lists(self):
        self.init()
        for counts in ([7] * self.world_size, [rank * 3 for rank in range(self.world_size)]):

            def parts(rank, counts=counts):
                return list(self.of(rank, sum(counts)).split(counts))

            found = torch.zeros(counts[self.rank], device=self.device)
            dist.reduce_scatter(found, [self.on_device(part) for part in parts(self.rank)])
            expected = oracle.reduced([parts(rank)[self.rank] for rank in range(self.world_size)])
            self.same(found, expected, counts)

    def test_reduce_scatter_of_one_tensor(self):
        self.init()
        for op in ("SUM", "AVG", "MAX"):
            for count in oracle.sizes_for(self.world_size):
                found = torch.zeros(count, device=self.device)
                whole = self.on_device(self.mine(count * self.world_size))
                dist.reduce_scatter_single(found, whole, oracle.operation(op))
                every = self.everyones(count * self.world_size)
                expected = oracle.reduced(every, op)[count * self.rank : count * (self.rank + 1)]
                self.same(found, expected, op, count)

    def test_gather_and_scatter(self):
        self.init()
        for root in range(self.world_size):
            for count in (0, 1, 13, 40_001):
                found = [torch.zeros(count, device=self.device) for _ in range(self.world_size)]
                mine = self.on_device(self.mine(count))
                dist.gather(mine, found if root == self.rank else None, dst=root)
                if root == self.rank:
                    for rank, tensor in enumerate(found):
                        self.same(tensor, self.of(rank, count), root, count)
                parts = [
                    self.on_device(self.of(rank + 2, count)) for rank in range(self.world_size)
                ]
                one = torch.zeros(count, device=self.device)
                dist.scatter(one, parts if root == self.rank else None, src=root)
                self.same(one, self.of(self.rank + 2, count), root, count)

    def test_all_to_all_of_lists_and_tensors(self):
        self.init()
        # Rank a sends a + b elements to rank b, and nothing to itself if it is rank 0.
        found = [
            torch.zeros(rank + self.rank, device=self.device) for rank in range(self.world_size)
        ]
        sent = [
            self.on_device(self.of(self.rank * 10 + rank, rank + self.rank))
            for rank in range(self.world_size)
        ]
        dist.all_to_all(found, sent)
        for rank, tensor in enumerate(found):
            self.same(tensor, self.of(rank * 10 + self.rank, rank + self.rank))

        even = self.on_device(self.mine(4 * self.world_size)).reshape(2 * self.world_size, 2)
        out = torch.zeros_like(even)
        dist.all_to_all_single(out, even)
        expected = torch.cat(
            [
                x.reshape(-1, 2)[2 * self.rank : 2 * self.rank + 2]
                for x in self.everyones(4 * self.world_size)
            ]
        )
        self.same(out, expected)

    def test_all_to_all_with_uneven_and_empty_splits(self):
        self.init()
        splits = [[(a * b) % 3 for b in range(self.world_size)] for a in range(self.world_size)]
        send = splits[self.rank]
        receive = [splits[rank][self.rank] for rank in range(self.world_size)]
        rows = [
            self.of(rank, 2 * sum(splits[rank])).reshape(-1, 2) for rank in range(self.world_size)
        ]
        out = torch.zeros(sum(receive), 2, device=self.device)
        dist.all_to_all_single(out, self.on_device(rows[self.rank]), receive, send)
        expected = torch.cat([rows[r].split(splits[r])[self.rank] for r in range(self.world_size)])
        self.same(out, expected)

    def test_coalesced_forms(self):
        self.init()
        backend = self.backend()
        tensors = [self.on_device(self.mine(count)) for count in (1, 0, 17)]
        dist.all_reduce_coalesced(tensors)
        for tensor in tensors:
            self.same(tensor, oracle.reduced(self.everyones(tensor.numel())))

        lists = [
            [torch.zeros(n, device=self.device) for n in (2, 5)] for _ in range(self.world_size)
        ]
        backend.allgather_coalesced(lists, [self.on_device(self.mine(n)) for n in (2, 5)]).wait()
        for rank, tensors in enumerate(lists):
            for tensor in tensors:
                self.same(tensor, self.of(rank, tensor.numel()))

        wholes = [torch.zeros(n * self.world_size, device=self.device) for n in (3, 4)]
        with dist._coalescing_manager():
            for whole in wholes:
                dist.all_gather_single(
                    whole, self.on_device(self.mine(whole.numel() // self.world_size))
                )
        for whole in wholes:
            self.same(whole, torch.cat(self.everyones(whole.numel() // self.world_size)))

        parts = [torch.zeros(n, device=self.device) for n in (3, 4)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for part in parts:
                dist.reduce_scatter_single(
                    part, self.on_device(self.mine(part.numel() * self.world_size))
                )
        manager.wait()
        for part in parts:
            count = part.numel()
            every = oracle.reduced(self.everyones(count * self.world_size))
            self.same(part, every[count * self.rank : count * (self.rank + 1)])

    def test_operations_on_the_backend_object(self):
        self.init()
        backend = self.backend()
        opts = dist.AllreduceOptions()
        opts.reduceOp = dist.ReduceOp.PRODUCT
        for dtype in oracle.COMPLEX:
            tensor = self.on_device(self.mine(5, dtype))
            backend.allreduce([tensor], opts).wait()
            self.same(tensor, oracle.reduced(self.everyones(5, dtype), "PRODUCT"), dtype)
        self.assertEqual(backend._get_sequence_number_for_group(), len(oracle.COMPLEX))
        backend._set_sequence_number_for_group()

    def test_objects(self):
        self.init()
        mine = {"rank": self.rank, "text": "x" * (10 * self.rank + 1)}
        found = [None] * self.world_size
        dist.all_gather_object(found, mine)
        self.assertEqual([one["rank"] for one in found], list(range(self.world_size)))
        objects = ["a", {"b": 2}] if self.rank == 0 else [None, None]
        dist.broadcast_object_list(objects, src=0)
        self.assertEqual(objects, ["a", {"b": 2}])
        gathered = [None] * self.world_size if self.rank == 0 else None
        dist.gather_object(mine, gathered, dst=0)
        if self.rank == 0:
            self.assertEqual(gathered[-1]["rank"], self.world_size - 1)
        one = [None]
        dist.scatter_object_list(
            one,
            [f"for {rank}" for rank in range(self.world_size)] if self.rank == 0 else None,
            src=0,
        )
        self.assertEqual(one, [f"for {self.rank}"])

    def test_barriers(self):
        self.init()
        dist.barrier()
        work = dist.barrier(async_op=True)
        self.assertTrue(work.wait())
        self.assertTrue(work.is_completed())
        self.backend().monitored_barrier(datetime.timedelta(seconds=30))
        self.assertEqual(torch.openreg.memory_allocated(1), 0)


class ThreeRankCollectivesTest(CollectivesTest):
    ranks = 3


class FourRankCollectivesTest(CollectivesTest):
    ranks = 4
