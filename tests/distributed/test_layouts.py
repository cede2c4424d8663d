"""Tensors that are not contiguous: right values, or a refusal before any data moves."""

import oracle
import torch
import torch.distributed as dist
from harness import RankTestCase, values

SHAPE = (4, 3, 2, 5)


def views(base):
    """Non-contiguous views of a contiguous 4-d tensor, each by its name."""
    return {
        "transposed": base.transpose(1, 3),
        "strided": base[:, :, :, ::2],
        "column": base[:, :, :, 1:2],
        "channels_last": base.contiguous(memory_format=torch.channels_last),
        "permuted": base.permute(3, 1, 0, 2),
        "0-dim": base[1, 1, 1, 1],
        "empty": base[:, :0],
    }


class LayoutTest(RankTestCase):
    def base(self, rank):
        return values(rank, 120).reshape(SHAPE)

    def test_in_place_operations(self):
        self.init()
        operations = {
            "all_reduce": (dist.all_reduce, lambda every: oracle.reduced(every)),
            "broadcast": (lambda t: dist.broadcast(t, 1), lambda every: every[1]),
            "reduce": (
                lambda t: dist.reduce(t, 1),
                lambda every: oracle.reduced(every) if self.rank == 1 else every[0],
            ),
        }
        for name, (operation, expected_of) in operations.items():
            for layout in views(self.base(0)):
                storage = self.base(self.rank).to(self.device)
                view = views(storage)[layout]
                expected_storage = self.base(self.rank)
                expected = views(expected_storage)[layout]
                expected.copy_(expected_of([views(self.base(rank))[layout] for rank in (0, 1)]))
                operation(view)
                self.assertEqual(view.cpu(), expected, msg=f"{name} {layout}")
                # What lies between the elements of the view is untouched.
                self.assertEqual(storage.cpu(), expected_storage, msg=f"{name} {layout}")

    def test_broadcast_of_one_column(self):
        self.init()
        matrix = (torch.arange(6.0).reshape(3, 2) + 10 * self.rank).to(self.device)
        dist.broadcast(matrix[:, 1], src=0)
        expected = torch.arange(6.0).reshape(3, 2) + 10 * self.rank
        expected[:, 1] = torch.tensor([1.0, 3.0, 5.0])
        self.assertEqual(matrix.cpu(), expected)

    def test_channels_last_on_one_rank_only(self):
        self.init()
        tensor = self.base(self.rank).to(self.device)
        if self.rank == 1:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.cpu(), self.base(0) + self.base(1))

    def test_asynchronous_operations_copy_back_in_order(self):
        self.init()
        tensor = self.base(self.rank).to(self.device).transpose(0, 3)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        doubled = tensor * 2
        self.assertEqual(doubled.cpu(), 2 * (self.base(0) + self.base(1)).transpose(0, 3))
        self.assertTrue(work.is_completed())

    def test_gathering_and_scattering_operations(self):
        self.init()
        every = [self.base(rank).transpose(0, 1) for rank in (0, 1)]
        mine = self.base(self.rank).to(self.device).transpose(0, 1)

        def empty():
            return torch.zeros(SHAPE, device=self.device).transpose(0, 1)

        found = [empty(), empty()]
        dist.all_gather(found, mine)
        for rank in (0, 1):
            self.assertEqual(found[rank].cpu(), every[rank])
        whole = torch.zeros(2 * 3, 5, 2, 4, device=self.device).transpose(1, 3)
        dist.all_gather_single(whole, mine)
        self.assertEqual(whole.cpu(), torch.cat(every).reshape(whole.shape))
        out = empty()
        dist.reduce_scatter(out, [mine, mine])
        self.assertEqual(out.cpu(), every[0] + every[1])
        dist.scatter(out, [mine, mine] if self.rank == 0 else None, src=0)
        self.assertEqual(out.cpu(), every[0])
        dist.gather(mine, found if self.rank == 1 else None, dst=1)
        outs = [empty(), empty()]
        dist.all_to_all(outs, [mine, mine])
        for rank in (0, 1):
            self.assertEqual(outs[rank].cpu(), every[rank])
        if self.rank == 0:
            dist.send(mine, 1)
        else:
            dist.recv(out, 0)
            self.assertEqual(out.cpu(), every[0])

    def test_inputs_that_overlap_themselves_are_read(self):
        self.init()
        expanded = torch.tensor([self.rank + 1.0], device=self.device).expand(4)
        found = torch.zeros(8, device=self.device)
        dist.all_gather_single(found, expanded)
        self.assertEqual(found.cpu(), torch.tensor([1.0] * 4 + [2.0] * 4))

    def test_outputs_that_overlap_themselves_are_refused(self):
        self.init()
        base = torch.zeros(8, device=self.device)
        for output in (base[:1].expand(4), base.as_strided((3, 3), (1, 1))):
            with self.raises(ValueError, "overlaps itself", "all_reduce", f"rank {self.rank}"):
                dist.all_reduce(output)
        self.assertEqual(base.cpu(), torch.zeros(8))
        dist.all_reduce(base)

    def test_conjugate_and_negative_views_of_complex_tensors(self):
        self.init()
        for dtype in (torch.complex64, torch.complex128):
            for view in (torch.conj, lambda base: base.conj().imag):
                every = [view(values(rank, 4, dtype)).clone() for rank in (0, 1)]
                mine = view(values(self.rank, 4, dtype).to(self.device))
                outputs = [view(torch.zeros(4, dtype=dtype, device=self.device)) for _ in "01"]
                dist.gather(mine, outputs if self.rank == 1 else None, 1)
                if self.rank == 1:
                    self.assertEqual([output.cpu() for output in outputs], every)
                total = torch.zeros(2, dtype=mine.dtype, device=self.device)
                dist.reduce_scatter_single(total, mine)
                part = slice(2 * self.rank, 2 * self.rank + 2)
                self.assertEqual(total.cpu(), every[0][part] + every[1][part])
        # torch refuses what it would have to make a real view of.
        conjugate = torch.ones(2, dtype=torch.complex64, device=self.device).conj()
        with self.raises(RuntimeError, "unresolved conjugated"):
            dist.all_reduce(conjugate)
        dist.barrier()

    def test_conjugate_views(self):
        self.init()
        tensor = torch.tensor([1 + 2j, 3 - 1j], device=self.device)
        found = [torch.zeros(2, dtype=torch.complex64, device=self.device) for _ in range(2)]
        self.backend().allgather([found], [tensor.conj()]).wait()
        self.assertEqual(found[1].cpu(), torch.tensor([1 - 2j, 3 + 1j]))
