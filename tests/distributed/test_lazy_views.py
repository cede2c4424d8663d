"""Lazily conjugated and negated tensors: every operator reads them, and writes into them."""

import datetime

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from harness import RankTestCase, values
from torch.distributed import distributed_c10d as c10d

COUNT = 6
VIEWS = {
    "conj": torch.conj,
    "neg": lambda base: base.conj().imag,
    "conj of neg": lambda base: torch._neg_view(base.conj()),
}
FUNCTIONAL = torch.ops._c10d_functional


def options(kind, **fields):
    made = kind()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class Case:
    """Calls of one kind of view. `written` are the outputs with what they have to be."""

    def __init__(self, test, view, asynchronous, plain):
        self.view = view
        self.group = dist.group.WORLD
        self.rank = test.rank
        self.device = test.device
        self.asynchronous = asynchronous
        self.plain = plain
        self.every = [view(values(rank, COUNT, torch.complex64)).clone() for rank in (0, 1)]
        self.total = self.every[0] + self.every[1]
        self.written = []

    def of(self, kind, **fields):
        return options(kind, asyncOp=self.asynchronous, **fields)

    def given(self, rank=None):
        rank = self.rank if rank is None else rank
        base = values(rank, COUNT, torch.complex64).to(self.device)
        return self.view(base).clone() if self.plain else self.view(base)

    def halves(self, tensor):
        return list(tensor.chunk(2))

    def output(self, expected):
        base = torch.zeros(expected.shape, dtype=torch.complex64, device=self.device)
        tensor = self.view(base)
        return self.expect(tensor.clone() if self.plain else tensor, expected)

    def in_place(self, expected):
        return self.expect(self.given(), expected)

    def expect(self, tensor, expected):
        self.written.append((tensor, expected))
        return tensor

    # ---- the operators, each under its name in c10d

    def broadcast_(self):
        opts = self.of(c10d.BroadcastOptions, rootRank=1)
        return self.group.broadcast([self.in_place(self.every[1])], opts)

    def allreduce_(self):
        return self.group.allreduce([self.in_place(self.total)], self.of(c10d.AllreduceOptions))

    def allreduce_coalesced_(self):
        tensors = [self.in_place(self.total), self.in_place(self.total)]
        return self.group.allreduce_coalesced(tensors, self.of(c10d.AllreduceCoalescedOptions))

    def reduce_(self):
        tensor = self.in_place(self.total if self.rank == 1 else self.every[0])
        return self.group.reduce([tensor], self.of(c10d.ReduceOptions, rootRank=1))

    def allgather_(self):
        outputs = [self.output(one) for one in self.every]
        return self.group.allgather([outputs], [self.given()], self.of(c10d.AllgatherOptions))

    def _allgather_base_(self):
        output = self.output(torch.cat(self.every))
        return self.group._allgather_base(output, self.given(), self.of(c10d.AllgatherOptions))

    def allgather_into_tensor_coalesced_(self):
        outputs = [self.output(torch.cat(self.every)) for _ in "01"]
        inputs = [self.given(), self.given()]
        opts = self.of(c10d.AllgatherOptions)
        return self.group.allgather_into_tensor_coalesced(outputs, inputs, opts)

    def gather_(self):
        outputs = [[self.output(one) for one in self.every]] if self.rank == 1 else []
        return self.group.gather(outputs, [self.given()], self.of(c10d.GatherOptions, rootRank=1))

    def scatter_(self):
        inputs = [[self.given(rank) for rank in (0, 1)]] if self.rank == 1 else []
        output = self.output(self.every[self.rank])
        return self.group.scatter([output], inputs, self.of(c10d.ScatterOptions, rootRank=1))

    def mine(self):
        return self.output(self.halves(self.total)[self.rank])

    def reduce_scatter_(self):
        inputs = [self.halves(self.given())]
        opts = self.of(c10d.ReduceScatterOptions)
        return self.group.reduce_scatter([self.mine()], inputs, opts)

    def _reduce_scatter_base_(self):
        opts = self.of(c10d.ReduceScatterOptions)
        return self.group._reduce_scatter_base(self.mine(), self.given(), opts)

    def reduce_scatter_tensor_coalesced_(self):
        outputs, inputs = [self.mine(), self.mine()], [self.given(), self.given()]
        opts = self.of(c10d.ReduceScatterOptions)
        return self.group.reduce_scatter_tensor_coalesced(outputs, inputs, opts)

    def alltoall_(self):
        outputs = [self.output(self.halves(one)[self.rank]) for one in self.every]
        opts = self.of(c10d.AllToAllOptions)
        return self.group.alltoall(outputs, self.halves(self.given()), opts)

    def alltoall_base_(self):
        output = self.output(torch.cat([self.halves(one)[self.rank] for one in self.every]))
        return self.group.alltoall_base(output, self.given(), [], [], self.of(c10d.AllToAllOptions))

    def recv_(self):
        if self.rank == 0:
            return self.group.send([self.given()], 1, 7)
        return self.group.recv([self.output(self.every[0])], 0, 7)

    def recv_any_source_(self):
        if self.rank == 1:
            return self.group.send([self.given()], 0, 7)
        return self.group.recv_anysource([self.output(self.every[1])], 7)


OPERATORS = [name for name in vars(Case) if name.endswith("_") and not name.startswith("__")]


class LazyViewsTest(RankTestCase):
    def late(self, key):
        """Where rank 1 comes only when rank 0 says so."""
        if self.rank == 1:
            c10d._get_default_store().wait([key], datetime.timedelta(seconds=60))

    def say(self, key):
        if self.rank == 0:
            c10d._get_default_store().set(key, "")

    def check(self, operators=OPERATORS):
        for name in operators:
            for kind, view in VIEWS.items():
                for asynchronous in (False, True):
                    # Rank 1 may have plain tensors: what travels is the same.
                    for plain in (False, self.rank == 1):
                        case = Case(self, view, asynchronous, plain)
                        getattr(case, name)().wait()
                        for tensor, expected in case.written:
                            lazy = tensor.is_conj() or tensor.is_neg()
                            self.assertEqual(lazy, not plain)
                            message = f"{name} {kind} {asynchronous} {plain}"
                            self.assertEqual(tensor.cpu(), expected, msg=message)

    def test_every_operator(self):
        self.init()
        self.check()

    def test_every_operator_that_torch_checks_in_detail(self):
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        self.init()
        self.check()

    def test_the_table_has_every_operator_that_writes(self):
        written = {
            name.removeprefix("c10d::")
            for name in torch._C._dispatch_get_all_op_names()
            if name.startswith("c10d::") and name.endswith("_") and "barrier" not in name
        }
        self.assertEqual(written, {*OPERATORS, "allgather_coalesced_"})

    def test_a_result_lies_in_the_memory_of_the_base(self):
        self.init()
        base = values(self.rank, COUNT, torch.complex64).to(self.device)
        work = dist.broadcast(base.conj().imag, 1, async_op=True)
        self.assertTrue(work.result()[0].is_neg())
        work.wait()
        expected = values(self.rank, COUNT, torch.complex64)
        expected.imag = values(1, COUNT, torch.complex64).imag
        self.assertEqual(base.cpu(), expected)

    def test_a_batch_of_messages(self):
        self.init()
        given = values(self.rank, COUNT, torch.complex64).to(self.device).conj().imag
        found = torch.zeros(COUNT, dtype=torch.complex64, device=self.device).conj().imag
        peer = 1 - self.rank
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, given, peer), dist.P2POp(dist.irecv, found, peer)]
        )
        for work in works:
            work.wait()
        self.assertEqual(found.cpu(), values(peer, COUNT, torch.complex64).conj().imag)

    def test_functional_operators_in_place(self):
        self.init()
        dist.barrier()
        name = dist.group.WORLD.group_name
        every = [values(rank, COUNT, torch.complex64).conj().imag.clone() for rank in (0, 1)]
        total = every[0] + every[1]

        def mine():
            return values(self.rank, COUNT, torch.complex64).to(self.device).conj().imag

        def zeros(count):
            return torch.zeros(count, dtype=torch.complex64, device=self.device).conj().imag

        def gathered(output):
            FUNCTIONAL.all_gather_into_tensor_out(mine(), 2, name, out=output)

        def scattered(output):
            FUNCTIONAL.reduce_scatter_tensor_out(mine(), "sum", 2, name, out=output)

        operations = {
            "all_reduce_": (lambda t: FUNCTIONAL.all_reduce_(t, "sum", name), mine(), total),
            "all_reduce_coalesced_": (
                lambda t: FUNCTIONAL.all_reduce_coalesced_([t], "sum", name),
                mine(),
                total,
            ),
            "broadcast_": (lambda t: FUNCTIONAL.broadcast_(t, 1, name), mine(), every[1]),
            "all_gather_into_tensor_out": (gathered, zeros(2 * COUNT), torch.cat(every)),
            "reduce_scatter_tensor_out": (
                scattered,
                zeros(COUNT // 2),
                total.chunk(2)[self.rank],
            ),
        }
        for key, (operation, tensor, expected) in operations.items():
            self.late(key)
            operation(tensor)
            # On the stream; rank 1 has not come yet.
            waited = FUNCTIONAL.wait_tensor(tensor)
            read = waited + 0
            self.say(key)
            self.assertEqual(read.cpu(), expected, msg=key)
            self.assertEqual(tensor.cpu(), expected, msg=key)

    def test_functional_messages(self):
        self.init()
        name = dist.group.WORLD.group_name
        given = values(0, COUNT, torch.complex64).to(self.device).conj().imag
        for batch in (False, True):
            tensor = given
            if self.rank == 1:
                tensor = torch.zeros_like(given.conj(), dtype=torch.complex64).conj().imag
            if batch:
                kind, peer = (("isend", 1), ("irecv", 0))[self.rank]
                FUNCTIONAL.batch_p2p_ops([kind], [peer], [0], [tensor], name)
            elif self.rank == 0:
                FUNCTIONAL.isend(tensor, 1, 0, name)
            else:
                FUNCTIONAL.irecv(tensor, 0, 0, name)
            FUNCTIONAL.wait_tensor(tensor)
            self.assertEqual(tensor.cpu(), given.cpu())

    def test_functional_collectives_read_them(self):
        self.init()
        every = [values(rank, COUNT, torch.complex64) for rank in (0, 1)]
        mine = every[self.rank].to(self.device)
        group = dist.group.WORLD

        def total(base):
            return funcol.all_reduce(base.conj().imag, "sum", group) + 0

        def gathered(base):
            return funcol.all_gather_tensor(base.conj(), 0, group) * 2

        for function, expected in (
            (total, (every[0] + every[1]).conj().imag),
            (gathered, torch.cat(every).conj() * 2),
        ):
            compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
            self.assertEqual(function(mine).cpu(), expected)
            self.assertEqual(compiled(mine).cpu(), expected)

    def test_other_groups_have_what_torch_does(self):
        self.init("cpu:gloo,openreg:occl")
        every = [values(rank, COUNT, torch.complex64) for rank in (0, 1)]
        found = torch.zeros(2 * COUNT)
        dist.all_gather_single(found, every[self.rank].conj().imag)
        self.assertEqual(found, torch.cat(every).conj().imag)
        # Gloo gets resolved copies, and so does another backend for openreg's tensors.
        fake = dist.new_group(backend="cpu:fake,openreg:fake")
        for group, device in ((dist.group.WORLD, "cpu"), (fake, self.device), (fake, "meta")):
            base = every[self.rank].to(device)
            for view in VIEWS.values():
                given, _ = torch.ops.c10d.broadcast_(
                    [view(base)], group.boxed(), 1, 0, False, 60_000
                )
                self.assertFalse(given[0].is_conj() or given[0].is_neg())
            if device != "meta":
                self.assertEqual(base.cpu(), every[self.rank])
