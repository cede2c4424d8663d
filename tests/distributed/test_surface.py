"""What c10d's Backend and Work promise, sentence by sentence, where other tests do not say it."""

import datetime
import json
import os
import pickle
import tempfile

import torch
import torch.distributed as dist
import torch_openreg.distributed
from harness import RankTestCase, values
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.common_utils import run_tests

FP8 = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
# Those that other tests do not move.
MOVED = [torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float4_e2m1fn_x2, *FP8]


def raw(seed, count, dtype):
    """`count` elements of any dtype whose bytes differ by seed and index."""
    size = torch.empty(0, dtype=dtype).element_size()
    limit = 2 if dtype == torch.bool else 97
    numbers = (torch.arange(count * size) * 7 + seed * 13) % limit
    return numbers.to(torch.uint8).view(dtype)


def bits(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


class EveryDtypeIsMovedTest(RankTestCase):
    ranks = 3

    def check(self, found, seed, count, dtype):
        self.assertEqual(bits(found), bits(raw(seed, count, dtype)), msg=str(dtype))

    def test_to_all_and_from_one(self):
        self.init()
        ranks = range(self.ranks)
        for dtype in MOVED:
            for count in (1, 5, 4000):
                mine = raw(self.rank, count, dtype).to(self.device)
                tensor = mine.clone()
                dist.broadcast(tensor, 1)
                self.check(tensor, 1, count, dtype)
                found = [torch.empty_like(mine) for _ in ranks]
                dist.all_gather(found, mine)
                for rank in ranks:
                    self.check(found[rank], rank, count, dtype)
                parts = [raw(10 + r, count, dtype).to(self.device) for r in ranks]
                dist.scatter(tensor, parts if self.rank == 0 else None, 0)
                self.check(tensor, 10 + self.rank, count, dtype)
                dist.gather(mine, found if self.rank == 2 else None, 2)
                if self.rank == 2:
                    for rank in ranks:
                        self.check(found[rank], rank, count, dtype)

    def test_between_all_and_between_two(self):
        self.init()
        ranks = range(self.ranks)
        for dtype in MOVED:
            for count in (1, 5, 4000):
                sent = [raw(self.rank * 10 + r, count, dtype).to(self.device) for r in ranks]
                found = [torch.empty_like(part) for part in sent]
                dist.all_to_all(found, sent)
                for rank in ranks:
                    self.check(found[rank], rank * 10 + self.rank, count, dtype)
                whole = torch.cat([part.cpu().view(torch.uint8) for part in sent]).view(dtype)
                result = torch.empty(count * self.ranks, dtype=dtype, device=self.device)
                dist.all_to_all_single(result, whole.to(self.device))
                expected = [bits(raw(r * 10 + self.rank, count, dtype)) for r in ranks]
                self.assertEqual(bits(result), torch.cat(expected))
                dist.all_gather_into_tensor(result, sent[0])
                expected = [bits(raw(r * 10, count, dtype)) for r in ranks]
                self.assertEqual(bits(result), torch.cat(expected))
                if self.rank == 0:
                    dist.send(sent[1], 1)
                elif self.rank == 1:
                    dist.recv(found[0], 0)
                    self.check(found[0], 1, count, dtype)

    def test_float8_is_not_reduced(self):
        self.init()
        for dtype in FP8:
            tensor = raw(0, 3, dtype).to(self.device)
            one = torch.empty(1, dtype=dtype, device=self.device)
            for call in (
                lambda tensor=tensor: dist.all_reduce(tensor),
                lambda tensor=tensor: dist.reduce(tensor, 0),
                lambda tensor=tensor, one=one: dist.reduce_scatter_tensor(one, tensor),
            ):
                with self.raises(TypeError, "not defined for tensors of dtype"):
                    call()
        dist.all_reduce(tensor := torch.ones(3, device=self.device))
        self.assertEqual(tensor.cpu(), torch.full((3,), 3.0))


class EmptyAndScalarTest(RankTestCase):
    ranks = 3

    def empty(self, *shape):
        return torch.empty(*shape, device=self.device)

    def empties(self, *shape):
        return [self.empty(*shape) for _ in range(self.ranks)]

    def test_no_elements(self):
        self.init()
        for shape in ((0,), (0, 3), (3, 0, 2)):
            tensor = self.empty(*shape)
            on_root = self.empties(*shape) if self.rank == 0 else None
            dist.all_reduce(tensor)
            dist.broadcast(tensor, 0)
            dist.reduce(tensor, 1)
            dist.all_gather(self.empties(*shape), tensor)
            dist.gather(tensor, on_root, 0)
            dist.scatter(tensor, on_root, 0)
            dist.reduce_scatter(tensor, self.empties(*shape))
            dist.all_to_all(self.empties(*shape), self.empties(*shape))
            self.assertEqual(tuple(tensor.shape), shape)
        dist.all_gather_into_tensor(self.empty(0), self.empty(0))
        dist.reduce_scatter_tensor(self.empty(0), self.empty(0))
        dist.all_to_all_single(self.empty(0, 4), self.empty(0, 4), [0] * 3, [0] * 3)
        if self.rank == 0:
            dist.send(self.empty(0), 1)
        elif self.rank == 1:
            dist.recv(self.empty(0), 0)
        dist.barrier()

    def test_no_dimensions(self):
        self.init()

        def mine():
            return torch.tensor(float(self.rank), device=self.device)

        dist.all_reduce(total := mine())
        self.assertEqual(total.item(), 3)
        dist.broadcast(tensor := mine(), 2)
        self.assertEqual(tensor.item(), 2)
        found = [mine() for _ in range(self.ranks)]
        dist.all_gather(found, mine())
        self.assertEqual([t.item() for t in found], [0, 1, 2])
        dist.all_gather_into_tensor(whole := self.empty(3), mine())
        self.assertEqual(whole.cpu(), torch.arange(3.0))


class BackendObjectTest(RankTestCase):
    def test_sequence_numbers_count_collectives(self):
        self.init()
        backend = self.backend()  # torch's group asks the backends that it knows by name only
        before = backend._get_sequence_number_for_group()
        for _ in range(3):
            dist.all_reduce(torch.ones(2, device=self.device))
        self.assertEqual(backend._get_sequence_number_for_group(), before + 3)

    def test_timeouts(self):
        self.init()
        backend = self.backend()
        for number, change in enumerate(
            (backend._set_default_timeout, dist.group.WORLD.set_timeout), 77
        ):
            change(datetime.timedelta(seconds=number))
            self.assertEqual(backend.options._timeout, datetime.timedelta(seconds=number))

    def test_memory(self):
        self.init()
        backend = self.backend()
        self.assertTrue(backend.supports_tensor_alloc(self.device))
        tensor = backend.allocate_tensor(100, dtype=torch.float32, device=self.device)
        self.assertEqual((tensor.numel(), tensor.device), (100, self.device))
        self.assertIsNotNone(backend.mem_allocator)
        dist.all_reduce(torch.ones(4, device=self.device))
        torch.openreg.synchronize()
        self.assertGreaterEqual(backend.memory_stats()["operations"], 1)
        for name in ("suspend", "resume"):
            with self.raises(RuntimeError, "does not support"):
                getattr(backend, name)()

    def test_completion_hooks(self):
        self.init()
        seen = []
        backend = self.backend()
        backend._register_on_completion_hook(lambda info: seen.append((info.seq, info.op_type)))
        for _ in range(4):
            dist.all_reduce(torch.ones(9, device=self.device))
        backend._wait_for_pending_works()
        self.assertEqual([number for number, _ in seen], [1, 2, 3, 4])
        self.assertEqual({kind for _, kind in seen}, {torch._C._distributed_c10d.OpType.ALLREDUCE})

    def test_every_method_of_work(self):
        self.init()
        work = dist.all_reduce(torch.ones(1000, device=self.device), async_op=True)
        work.wait()
        torch.openreg.synchronize()
        self.assertTrue(work.is_completed())
        self.assertTrue(work.is_success())
        self.assertIsNone(work.exception())
        work.synchronize()
        work.block_current_stream()
        self.assertEqual(work.result()[0].cpu(), torch.full((1000,), 2.0))
        self.assertGreater(work._get_duration(), 0)
        self.assertEqual(work.get_future_result().wait(), 0)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        self.assertEqual(doubled.wait().cpu(), torch.full((1000,), 4.0))
        with self.raises(RuntimeError, "sourceRank() is known for receives only"):
            work._source_rank()

    def test_barriers_use_no_other_device(self):
        self.init()
        dist.barrier()
        dist.barrier(async_op=True).wait()
        for index in range(1, torch.openreg.device_count()):
            self.assertEqual(torch.openreg.memory_reserved(index), 0)

    def test_objects_on_the_device_alone_and_beside_the_cpu(self):
        for kind in ("occl", "cpu:gloo,openreg:occl"):
            self.init(kind, init_method=f"file://{self.file_name}{len(kind)}")
            found = [None, None]
            dist.all_gather_object(found, {"rank": self.rank, "list": list(range(self.rank))})
            self.assertEqual(found, [{"rank": 0, "list": []}, {"rank": 1, "list": [0]}])
            dist.destroy_process_group()

    def test_destroy_after_a_partial_split(self):
        device = torch.device("openreg", self.rank)
        torch.openreg.set_device(device)
        self.init(device_id=device)
        group = dist.split_group(split_ranks=[[1]])
        if self.rank == 1:
            dist.all_reduce(tensor := torch.ones(2, device=device), group=group)
            self.assertEqual(tensor.cpu(), torch.ones(2))
        dist.destroy_process_group()


class ExitTest(RankTestCase):
    def test_a_peer_exits_before_the_first_collective_of_a_subgroup(self):
        self.init(timeout=datetime.timedelta(seconds=3))
        dist.barrier()
        group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=3))
        if self.rank == 1:
            os._exit(0)
        with self.raises(dist.DistBackendError, "rank 1 (pid", "ended before it came"):
            dist.all_reduce(torch.ones(2, device=self.device), group=group)


class ProfileTest(RankTestCase):
    def test_record_param_comms_carries_sizes_dtypes_and_group(self):
        self.init()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
            dist.all_reduce(torch.ones(12, device=self.device))
            half = torch.ones(5, dtype=torch.float16, device=self.device)
            dist.all_gather_into_tensor(torch.empty(10, dtype=half.dtype, device=self.device), half)
            both = torch.ones(6, device=self.device)
            dist.all_to_all_single(torch.empty_like(both), both, [3, 3], [3, 3])
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            trace.export_chrome_trace(file.name)
            with open(file.name) as written:
                events = json.load(written)["traceEvents"]
        found = [e["args"] for e in events if e.get("name") == "record_param_comms"]
        reduced, gathered = found[0], found[1]
        self.assertEqual(reduced["Collective name"], "all_reduce")
        self.assertEqual((reduced["In msg nelems"], reduced["Out msg nelems"]), (12, 12))
        self.assertEqual(reduced["dtype"], "Float")
        self.assertEqual(reduced["Group size"], 2)
        self.assertEqual(gathered["Collective name"], "_all_gather_base")
        self.assertEqual((gathered["In msg nelems"], gathered["Out msg nelems"]), (5, 10))
        self.assertEqual(gathered["dtype"], "Half")


class PythonStackTest(RankTestCase):
    def setUp(self):
        os.environ["TORCH_FR_PYTHON_STACK"] = "1"
        super().setUp()

    @classmethod
    def _run(cls, *arguments, **options):
        os.environ["TORCH_FR_PYTHON_STACK"] = "1"
        super()._run(*arguments, **options)

    def test_the_flight_recorder_names_the_caller(self):
        self.init()

        def a_function_of_the_user():
            dist.all_reduce(torch.ones(3, device=self.device))

        a_function_of_the_user()
        torch.openreg.synchronize()
        dump = pickle.loads(torch_openreg.distributed.dump_flight_recorder())
        frames = dump["entries"][0]["frames"]
        names = [frame["name"] for frame in frames]
        self.assertIn("a_function_of_the_user", names)
        index = names.index("a_function_of_the_user")
        self.assertTrue(frames[index]["filename"].endswith("test_surface.py"))
        self.assertGreater(frames[index]["line"], 0)


class DetailTest(RankTestCase):
    @classmethod
    def _run(cls, *arguments, **options):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
        super()._run(*arguments, **options)

    def test_every_operation(self):
        self.init()
        device, peer = self.device, 1 - self.rank
        tensor = values(self.rank, 4).to(device)
        total = values(0, 4) + values(1, 4)
        dist.all_reduce(reduced := tensor.clone())
        self.assertEqual(reduced.cpu(), total)
        dist.all_gather_into_tensor(whole := torch.empty(8, device=device), tensor)
        self.assertEqual(whole.cpu(), torch.cat([values(0, 4), values(1, 4)]))
        dist.reduce_scatter_tensor(part := torch.empty(2, device=device), tensor)
        self.assertEqual(part.cpu(), total.chunk(2)[self.rank])
        dist.all_to_all_single(moved := torch.empty(4, device=device), tensor)
        expected = torch.cat([values(r, 4).chunk(2)[self.rank] for r in range(2)])
        self.assertEqual(moved.cpu(), expected)
        parts = [torch.empty(4, device=device) for _ in range(2)]
        dist.all_gather(parts, tensor)
        self.assertEqual(torch.stack(parts).cpu(), torch.stack([values(0, 4), values(1, 4)]))
        dist.gather(tensor, parts if self.rank == 0 else None, 0)
        dist.scatter(moved, parts if self.rank == 0 else None, 0)
        self.assertEqual(moved.cpu(), values(self.rank, 4))
        received = torch.empty(4, device=device)
        ops = [dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, received, peer)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        self.assertEqual(received.cpu(), values(peer, 4))
        if self.rank == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(received, 0)
            self.assertEqual(received.cpu(), values(0, 4))
        dist.barrier()
        with self.assertRaisesRegex(RuntimeError, "Detected mismatch"):
            dist.all_reduce(torch.ones(3 + self.rank, device=device))


if __name__ == "__main__":
    run_tests()
