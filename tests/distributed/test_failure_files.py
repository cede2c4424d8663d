"""Each rank tells of a group's failure once, wherever it meets it: in its log and in a file.

What meets a failed group again and again does not write again and again.
"""

import contextlib
import datetime
import glob
import os
import pickle
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from harness import RankTestCase, read_by_torchs_tool
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.common_utils import run_tests

_SHORT = datetime.timedelta(seconds=1)
_STORE_WAIT = datetime.timedelta(seconds=50)


class FailureFilesTestCase(RankTestCase):
    def init(self, **options):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{self.folder}/dump_"
        super().init(**options)

    def tensor(self, count=4):
        return torch.ones(count, device=self.device)

    def meet(self, name):
        """All ranks come here, without the group."""
        store = c10d._get_default_store()
        store.set(f"{name}/{self.rank}", "1")
        store.wait([f"{name}/{rank}" for rank in range(self.ranks)], _STORE_WAIT)

    def dump(self):
        """What has been written since the last call, None if nothing has."""
        [path] = glob.glob(f"{self.folder}/*") or [None]
        if path is None:
            return None
        self.assertEqual(path, f"{self.folder}/dump_{self.rank}")
        with open(path, "rb") as file:
            dump = pickle.load(file)
        os.remove(path)
        return dump

    def told_once(self, fail, *fragments, kind=dist.DistBackendError):
        """`fail` fails each time; returns the one dump."""
        self.assertIsNone(self.dump())
        dumps = []
        for _ in range(3):
            with self.raises(kind, *fragments):
                fail()
                torch.openreg.synchronize()
            dumps.append(self.dump())
        self.assertIsNotNone(dumps[0], "nothing was written")
        self.assertEqual(dumps[1:], [None, None], "it was written again")
        return dumps[0]

    def last_operation(self, dump):
        return dump["entries"][-1]["profiling_name"].split(" ")[0]


class FailureFilesTest(FailureFilesTestCase):
    def ways(self, group):
        """Every way into `group`."""
        peer = 1 - self.rank

        def coalesced():
            with dist._coalescing_manager(group, self.device):
                dist.all_reduce(self.tensor(), group=group)
                dist.all_reduce(self.tensor(), group=group)

        def batch():
            ops = [
                dist.P2POp(dist.isend, self.tensor(), peer, group),
                dist.P2POp(dist.irecv, self.tensor(), peer, group),
            ]
            dist.batch_isend_irecv(ops)

        double = dist._make_nccl_premul_sum(2.0)
        return [
            lambda: dist.all_reduce(self.tensor(), group=group),
            lambda: dist.all_reduce(self.tensor(), double, group=group),
            lambda: dist.all_reduce(self.tensor(), group=group, async_op=True).wait(),
            lambda: dist.all_to_all_single(self.tensor(), self.tensor(), group=group),
            lambda: dist.barrier(group),
            lambda: dist.send(self.tensor(), peer, group),
            lambda: dist.recv(self.tensor(), peer, group),
            lambda: dist.recv(self.tensor(), group=group),
            coalesced,
            batch,
            lambda: self.backend(group).split(c10d._get_default_store(), [0, 1], None),
        ]

    def test_who_comes_late_to_a_failed_group(self):
        self.init()
        for number in range(len(self.ways(None))):
            group = dist.new_group([0, 1])
            dist.all_reduce(self.tensor(), group=group)
            torch.openreg.synchronize()
            self.meet(f"good {number}")
            if self.rank == 0:
                self.backend(group).abort()
            self.meet(f"aborted {number}")
            self.told_once(self.ways(group)[number], "aborted")

    def test_who_waits_and_who_comes_after_the_deadline(self):
        self.init()
        group = dist.new_group([0, 1])
        dist.all_reduce(self.tensor(), group=group)
        torch.openreg.synchronize()
        self.meet("good")
        self.backend(group)._set_default_timeout(_SHORT)
        if self.rank == 0:
            dump = self.told_once(lambda: dist.all_reduce(self.tensor(7), group=group), "timed out")
            self.assertEqual(dump["entries"][-1]["state"], "started")
        self.meet("rank 0 has given up")
        if self.rank == 1:
            dump = self.told_once(lambda: dist.all_reduce(self.tensor(7), group=group), "timed out")
            self.assertEqual(self.last_operation(dump), "nccl:all_reduce")
            self.assertEqual(dump["entries"][-1]["input_sizes"], [[7]])
            self.assertEqual(dump["entries"][-1]["state"], "scheduled")  # it never started
        self.meet("over")

    def test_a_mismatch_that_is_found_at_issue(self):
        self.init()
        dist.all_reduce(self.tensor())
        torch.openreg.synchronize()
        self.meet("good")
        self.told_once(lambda: dist.all_reduce(self.tensor(5 + self.rank)), "disagree")

    def test_a_group_whose_ranks_do_not_meet(self):
        self.init()
        group = dist.new_group([0, 1], timeout=_SHORT)
        if self.rank == 0:
            dump = self.told_once(lambda: dist.all_reduce(self.tensor(7), group=group), "rank 1")
            self.assertEqual(self.last_operation(dump), "nccl:all_reduce")
            self.assertEqual(dump["entries"][-1]["input_sizes"], [[7]])
        self.meet("rank 0 has given up")
        if self.rank == 1:
            self.told_once(lambda: dist.all_reduce(self.tensor(), group=group), "rank(s) 1")
        self.meet("over")

    def test_a_group_that_is_connected_at_once(self):
        self.init()
        group = dist.new_group([0, 1], timeout=_SHORT)
        if self.rank == 0:
            connect = self.backend(group).eager_connect_single_device
            self.told_once(lambda: connect(self.device), "init", "rank(s) 1")
        self.meet("over")

    def test_a_group_that_this_rank_has_aborted(self):
        self.init()
        group = dist.new_group([0, 1])
        if self.rank == 0:
            self.backend(group).abort()
            self.told_once(lambda: dist.barrier(group), "was aborted")
            self.backend(group).shutdown()
            self.assertIsNone(self.dump())
        self.meet("over")

    def test_what_fails_with_the_group_still_good(self):
        self.init()
        dist.all_reduce(self.tensor())
        torch.openreg.synchronize()
        self.meet("good")
        backend = self.backend()
        backend._set_default_timeout(_SHORT)
        if self.rank == 0:
            memory = symm_mem.empty(10, device=self.device)
            self.told_once(lambda: backend.monitored_barrier(_SHORT), "monitored_barrier")
            self.told_once(lambda: symm_mem.rendezvous(memory, dist.group.WORLD), "rendezvous")
            self.told_once(lambda: backend.split(c10d._get_default_store(), [0, 1], None), "split")
            # And the group has its own report left.
            self.told_once(lambda: dist.all_reduce(self.tensor()), "timed out")
        self.meet("over")

    def test_a_signal_of_symmetric_memory_that_does_not_come(self):
        self.init()
        handle = symm_mem.rendezvous(symm_mem.empty(10, device=self.device), dist.group.WORLD)
        if self.rank == 0:

            def wait():
                handle.wait_signal(1, channel=4, timeout_ms=100)
                torch.openreg.synchronize()

            self.told_once(wait, "wait_signal", kind=RuntimeError)
        self.meet("over")

    def test_a_mistake_of_the_caller_is_no_failure(self):
        self.init()
        dist.barrier()
        with contextlib.suppress(ValueError):
            self.backend().send([self.tensor()], 5, 0)
        self.assertIsNone(self.dump())

    def test_torchs_tool_finds_the_file_of_every_rank(self):
        self.init()
        dist.all_reduce(self.tensor())
        torch.openreg.synchronize()
        self.meet("good")
        if self.rank == 0:
            self.backend().abort()
        self.meet("aborted")
        dump = self.told_once(lambda: dist.all_reduce(self.tensor()), "aborted")
        c10d._get_default_store().set(f"dump {self.rank}", pickle.dumps(dump))
        dumps = [pickle.loads(c10d._get_default_store().get(f"dump {rank}")) for rank in range(2)]
        database = read_by_torchs_tool(dumps)
        self.assertTrue(database.collectives)


class ShrinkTest(FailureFilesTestCase):
    ranks = 3

    def test_a_rank_that_does_not_come(self):
        self.init()
        dist.barrier()
        self.meet("good")
        self.backend()._set_default_timeout(_SHORT)
        if self.rank == 0:
            self.told_once(lambda: self.backend().shrink([2], 0, None), "shrink", "rank 1")
        self.meet("over")


if __name__ == "__main__":
    run_tests()
