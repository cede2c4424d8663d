"""torch_openreg.testing.faults: what a program sees of a rank in trouble."""

import datetime

import torch
import torch.distributed as dist
from harness import RankTestCase, values
from torch_openreg import testing

LONG = datetime.timedelta(seconds=60)


class FaultsTest(RankTestCase):
    def reduce(self, group=None, count=5):
        tensor = values(self.rank, count).to(self.device)
        dist.all_reduce(tensor, group=group, async_op=True).wait(LONG)
        self.assertEqual(tensor.cpu(), values(0, count) + values(1, count))

    def test_delays_and_slow_streams_change_no_value(self):
        self.init()
        self.reduce()
        with testing.faults(
            seed=3, delay=0.5, delay_s=0.02, slow_stream=0.5, slow_stream_s=0.001
        ) as faults:
            for count in (1, 100, 100_000):
                for _ in range(6):
                    self.reduce(count=count)
            counts = faults.counts()
        self.assertGreater(counts["delay"], 0)
        self.assertGreater(counts["slow_stream"], 0)
        self.assertEqual(counts["drop"] + counts["truncate"] + counts["reset"], 0)
        self.assertEqual(faults.counts(), counts)  # also after the block
        self.assertEqual(faults.seed, 3)
        self.reduce()

    def test_what_breaks_a_group_is_an_error_on_all_its_ranks(self):
        self.init()
        for chances, fragment in (
            ({"truncate": 1.0}, "disagree about the count"),
            ({"reset": 1.0}, "was reset (a fault on request, seed 11)"),
        ):
            group = dist.new_group([0, 1])
            self.reduce(group)
            dist.barrier()  # both have done with it before one begins to misbehave
            with self.raises(dist.DistBackendError, fragment):
                if self.rank == 1:  # only one rank misbehaves
                    with testing.faults(seed=11, **chances):
                        self.reduce(group)
                    # It had all it needed before the other rank complained: told at the next one.
                    self.reduce(group)
                else:
                    self.reduce(group)
        self.reduce()

    def test_what_is_dropped_is_missed_at_the_timeout(self):
        self.init()
        group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=2))
        self.reduce(group)
        dist.barrier()
        if self.rank == 1:  # hears the other rank, and is done: only what it says is lost
            with testing.faults(drop=1.0):
                self.reduce(group)
        else:
            with self.raises(dist.DistBackendError, "timed out", "rank(s) 1 (pid "):
                self.reduce(group)
        self.reduce()

    def test_messages_are_hit_too(self):
        self.init()
        group = dist.new_group([0, 1])
        tensor = torch.zeros(100, device=self.device)
        with self.raises(dist.DistBackendError, "count", "100", "99"):
            if self.rank == 0:
                with testing.faults(truncate=1.0):
                    dist.isend(tensor, 1, group).wait(LONG)
            else:
                dist.irecv(tensor, 0, group).wait(LONG)

    def test_an_allocation_that_fails_is_torchs_error_and_the_device_goes_on(self):
        self.init()
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            with testing.faults(seed=5, failing_allocation=1.0):
                torch.empty(1000, device=self.device)
        self.assertIn("fails on request", str(caught.exception))
        self.assertIn("seed=5", caught.exception.__notes__[0])
        self.reduce()

    def test_numbers_out_of_range_are_refused(self):
        for wrong in (
            {"delay": -0.1},
            {"drop": 1.5},
            {"drop": 0.6, "reset": 0.6},
            {"seed": -1},
            {"seed": 1 << 70},
        ):
            with self.assertRaises(ValueError), testing.faults(**wrong):
                self.fail("not reached")
        with self.assertRaises(ValueError), testing.faults(slow_stream=2.0):
            self.fail("not reached")
