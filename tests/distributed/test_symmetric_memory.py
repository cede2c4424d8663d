"""torch.distributed._symmetric_memory on openreg: a peer's memory is memory of this process."""

import datetime
import os
import signal
import threading

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from harness import RankTestCase, values
from torch.testing._internal.common_utils import run_tests

_SHORT = datetime.timedelta(seconds=2)


class SymmetricMemoryTest(RankTestCase):
    """With ranks that share a device; OwnDevicesTest has them apart."""

    def setup_memory(self, *shape, dtype=torch.float32, group=None):
        tensor = symm_mem.empty(*shape, dtype=dtype, device=self.device)
        return tensor, symm_mem.rendezvous(tensor, group or dist.group.WORLD)

    def test_says_what_it_is(self):
        self.init()
        tensor, handle = self.setup_memory(8, 3)
        self.assertEqual(tensor.device, self.device)
        self.assertEqual(tuple(tensor.shape), (8, 3))
        self.assertEqual((handle.rank, handle.world_size), (self.rank, self.ranks))
        self.assertEqual(handle.buffer_size, 8 * 3 * 4)
        self.assertEqual(handle.offset, 0)
        self.assertEqual(len(handle.buffer_ptrs), self.ranks)
        self.assertEqual(handle.buffer_ptrs[self.rank], tensor.data_ptr())
        self.assertEqual(handle.multicast_ptr, 0)
        self.assertEqual(symm_mem.get_backend(self.device), "OCCL")
        self.assertTrue(symm_mem.is_symm_mem_tensor(tensor))
        self.assertFalse(symm_mem.is_symm_mem_tensor(torch.empty(3, device=self.device)))

    def test_reads_a_peers_buffer_in_place(self):
        self.init()
        for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.uint8):
            tensor, handle = self.setup_memory(1003, dtype=dtype)
            tensor.copy_(values(self.rank, 1003, dtype))
            handle.barrier()
            for peer in range(self.ranks):
                buffer = handle.get_buffer(peer, (1003,), dtype)
                self.assertEqual(buffer.device, self.device)
                self.assertEqual(buffer.cpu(), values(peer, 1003, dtype))
                part = handle.get_buffer(peer, (5, 2), dtype, storage_offset=100)
                self.assertEqual(part.cpu(), values(peer, 1003, dtype)[100:110].view(5, 2))
                self.assertEqual(
                    (part + part).cpu(), 2 * values(peer, 1003, dtype)[100:110].view(5, 2)
                )
            handle.barrier(channel=1)

    def test_writes_into_a_peers_buffer(self):
        self.init()
        tensor, handle = self.setup_memory(self.ranks, 7)
        tensor.zero_()
        handle.barrier()
        for peer in range(self.ranks):
            handle.get_buffer(peer, (self.ranks, 7), torch.float32)[self.rank] = (
                values(self.rank, 7) * (peer + 1)
            ).to(self.device)
        handle.barrier()
        expected = torch.stack([values(r, 7) * (self.rank + 1) for r in range(self.ranks)])
        self.assertEqual(tensor.cpu(), expected)

    def test_an_all_reduce_made_of_it(self):
        self.init()
        tensor, handle = self.setup_memory(4099)
        for step in range(20):
            tensor.copy_(values(self.rank, 4099) + step)
            handle.barrier(channel=0)
            total = torch.zeros(4099, device=self.device)
            for peer in range(self.ranks):
                total += handle.get_buffer(peer, (4099,), torch.float32)
            handle.barrier(channel=1)
            expected = sum(values(r, 4099) + step for r in range(self.ranks))
            self.assertEqual(total.cpu(), expected)

    def test_signals_order_what_was_written(self):
        self.init()
        tensor, handle = self.setup_memory(50_000)
        for step in range(10):
            if self.rank == 0:
                for peer in range(1, self.ranks):
                    handle.get_buffer(peer, (50_000,), torch.float32).fill_(step * 10 + peer)
                    handle.put_signal(peer, channel=2)
                for peer in range(1, self.ranks):
                    handle.wait_signal(peer, channel=3)
            else:
                handle.wait_signal(0, channel=2)
                found = tensor.clone()
                handle.put_signal(0, channel=3)
                self.assertEqual(found.cpu(), torch.full((50_000,), step * 10.0 + self.rank))
        torch.openreg.synchronize()

    def test_signal_pads_are_tensors_and_end_at_zero(self):
        self.init()
        _, handle = self.setup_memory(4)
        pad = handle.get_signal_pad(self.rank, (self.ranks,), torch.int32, 0)
        self.assertEqual(handle.signal_pad_size, symm_mem.get_signal_pad_size())
        handle.barrier()
        handle.barrier()
        torch.openreg.synchronize()
        dist.barrier()
        self.assertEqual(pad.cpu().tolist(), [0] * self.ranks)
        # A signal given by a kernel of the user's own.
        if self.rank == 0:
            handle.get_signal_pad(1, (1,), torch.int32, 5 * self.ranks).fill_(1)
        elif self.rank == 1:
            handle.wait_signal(0, channel=5, timeout_ms=20_000)
        torch.openreg.synchronize()

    def test_waits_on_its_own_stream_only(self):
        self.init()
        _, handle = self.setup_memory(4)
        side = torch.openreg.Stream()
        if self.rank == 0:
            with torch.openreg.stream(side):
                handle.wait_signal(1, channel=0)
            self.assertFalse(side.query())
            self.assertEqual((torch.ones(3, device=self.device) * 2).sum().item(), 6)
            self.assertFalse(side.query())
        dist.barrier()
        if self.rank == 1:
            handle.put_signal(0, channel=0)
        torch.openreg.synchronize()  # the signal too, which is on the current stream

    def test_rendezvous_is_once_per_memory_and_group(self):
        self.init()
        tensor, handle = self.setup_memory(10)
        again = symm_mem.rendezvous(tensor, dist.group.WORLD)
        self.assertEqual(again.buffer_ptrs, handle.buffer_ptrs)
        group = dist.new_group([0, 1])
        if self.rank < 2:
            half = symm_mem.rendezvous(tensor, group)
            self.assertEqual(half.world_size, 2)
            tensor.fill_(self.rank + 5.0)
            half.barrier()
            self.assertEqual(half.get_buffer(1, (1,), torch.float32).item(), 6)
            half.barrier()
            torch.openreg.synchronize()

    def test_sizes_have_to_agree(self):
        self.init()
        tensor = symm_mem.empty(10 + self.rank, device=self.device)
        with self.raises(ValueError, "one size", f"has {4 * (10 + self.rank)} bytes"):
            symm_mem.rendezvous(tensor, dist.group.WORLD)

    def test_wrong_arguments(self):
        self.init()
        tensor, handle = self.setup_memory(10)
        with self.raises(RuntimeError, "channel of 0 to"):
            handle.barrier(channel=1 << 20)
        with self.raises(RuntimeError, "channel of 0 to"):
            handle.put_signal(1, channel=-1)
        with self.raises(RuntimeError, "source of 0 to"):
            handle.wait_signal(self.ranks)
        with self.raises(RuntimeError, "exceeds the allocated size"):
            handle.get_buffer(1, (11,), torch.float32)
        with self.raises(RuntimeError, "was not made by"):
            symm_mem.rendezvous(torch.empty(3, device=self.device), dist.group.WORLD)
        with self.raises(RuntimeError, "no group was named"):
            torch._C._distributed_c10d._SymmetricMemory.rendezvous(
                symm_mem.empty(3, device=self.device)
            )

    def test_a_rank_that_does_not_come_to_the_rendezvous(self):
        self.init(timeout=_SHORT)
        dist.barrier()
        store = dist.group.WORLD.get_group_store()
        if self.rank == 0:
            told = "rank 1 did not come within 2000 ms", ") runs"
            with self.raises(dist.DistBackendError, *told):
                self.setup_memory(10)
            store.set("over", "")
        store.wait(["over"])

    def test_a_signal_that_does_not_come(self):
        self.init()
        _, handle = self.setup_memory(10)
        if self.rank == 0:
            handle.wait_signal(1, channel=4, timeout_ms=300)
            with self.raises(
                RuntimeError, "wait_signal", "channel 4", "rank 1 did not come within 300 ms"
            ):
                torch.openreg.synchronize()
            handle.put_signal(1, channel=6, timeout_ms=300)
            handle.put_signal(1, channel=6, timeout_ms=300)  # nobody takes the first
            with self.raises(RuntimeError, "put_signal", "waiting to signal rank 1"):
                torch.openreg.synchronize()
        dist.barrier()

    def test_memory_lives_as_long_as_somebody_needs_it(self):
        self.init()
        before = torch.openreg.memory_allocated()
        for _ in range(5):
            tensor, handle = self.setup_memory(1 << 18)
            tensor.fill_(self.rank + 1.0)
            handle.barrier()
            peer = (self.rank + 1) % self.ranks
            buffer = handle.get_buffer(peer, (1 << 18,), torch.float32)
            self.assertEqual(buffer.sum().item(), (peer + 1) * float(1 << 18))
            handle.barrier()
            torch.openreg.synchronize()
            del tensor, handle, buffer
            dist.barrier()
        self.assertLess(torch.openreg.memory_allocated() - before, 3 << 20)


class OwnDevicesTest(SymmetricMemoryTest):
    ranks = 4

    @property
    def device(self):
        return torch.device("openreg", self.rank)

    def init(self, *arguments, **options):
        torch.openreg.set_device(self.rank)
        return super().init(*arguments, **options)


class AbortTest(RankTestCase):
    """Rank 0 waits long, and the group is aborted, by which rank ever."""

    def waits_until_abort(self, aborts, met, prepare, wait):
        self.init()
        if met:
            dist.barrier()
        prepared = prepare()
        store = dist.group.WORLD.get_group_store()
        abort = threading.Timer(0.3, self.backend().abort)
        if self.rank == 1:
            store.wait(["waits"])
        if self.rank == aborts:
            abort.start()
        if self.rank == 0:
            store.set("waits", "")
            with self.raises(dist.DistBackendError, f"was aborted by rank {aborts} of 2"):
                wait(prepared)
            store.set("over", "")
        store.wait(["over"])
        if self.rank == aborts:
            abort.join()

    def memory(self):
        tensor = symm_mem.empty(10, device=self.device)
        return symm_mem.rendezvous(tensor, dist.group.WORLD)

    def wait_for_signal(self, handle):
        handle.wait_signal(1, channel=4)
        torch.openreg.synchronize()

    def test_a_rendezvous(self):
        self.waits_until_abort(1, False, lambda: None, lambda _: self.memory())

    def test_a_rendezvous_of_a_group_that_has_met(self):
        self.waits_until_abort(1, True, lambda: None, lambda _: self.memory())

    def test_a_rendezvous_of_the_rank_itself(self):
        self.waits_until_abort(0, True, lambda: None, lambda _: self.memory())

    def test_a_signal(self):
        self.waits_until_abort(1, False, self.memory, self.wait_for_signal)

    def test_a_signal_of_a_group_that_has_met(self):
        self.waits_until_abort(1, True, self.memory, self.wait_for_signal)

    def test_a_signal_of_the_rank_itself(self):
        self.waits_until_abort(0, False, self.memory, self.wait_for_signal)


class DeathTest(RankTestCase):
    def test_a_rendezvous_ends_when_a_peer_has_died(self):
        self.init()
        dist.barrier()
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        tensor = symm_mem.empty(10, device=self.device)
        told = "rendezvous of symmetric memory", "rank 0 of 2", "rank 1 (pid ", "ended before it"
        with self.raises(dist.DistBackendError, *told):
            symm_mem.rendezvous(tensor, dist.group.WORLD)

    def test_a_barrier_ends_when_a_peer_has_died(self):
        self.init()
        tensor = symm_mem.empty(10, device=self.device)
        handle = symm_mem.rendezvous(tensor, dist.group.WORLD)
        dist.barrier()
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        handle.barrier()
        with self.raises(RuntimeError, "rank 1", "has ended"):
            torch.openreg.synchronize()
        # What was mapped stays readable.
        self.assertEqual(handle.get_buffer(1, (10,), torch.float32).shape, (10,))

    def _check_return_codes(self, *arguments):
        self.assertEqual(self.processes[0].exitcode, 0)


if __name__ == "__main__":
    run_tests()
