"""A store written in Python that raises: what it raised is the error of the operation, once."""

import datetime

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch.testing._internal.common_utils import run_tests

_SHORT = datetime.timedelta(seconds=3)


class RaisingStore(dist.Store):
    """`store`, but the first look for a key that ends with `raises_at` is a ValueError."""

    def __init__(self, store, raises_at):
        super().__init__()
        self._store = store
        self.raises_at = raises_at

    def check(self, keys):
        if self.raises_at and any(key.endswith(self.raises_at) for key in keys):
            self.raises_at = ""
            raise ValueError("the store is out of order")
        return self._store.check(keys)

    def set(self, key, value):
        self._store.set(key, value)

    def get(self, key):
        return self._store.get(key)

    def add(self, key, value):
        return self._store.add(key, value)

    def wait(self, *args):
        self._store.wait(*args)

    def set_timeout(self, timeout):
        self._store.set_timeout(timeout)

    @property
    def timeout(self):
        return self._store.timeout


class PythonStoreTest(RankTestCase):
    ranks = 3

    def begin(self, raises_at, **options):
        """The store of rank 1 raises."""
        self.files = dist.FileStore(self.file_name, self.world_size)
        self.store = RaisingStore(self.files, raises_at if self.rank == 1 else "")
        dist.init_process_group(
            "occl", store=self.store, rank=self.rank, world_size=self.world_size, **options
        )

    def all_reduce(self):
        dist.all_reduce(torch.ones(4, device=self.device))

    def meet(self, name):
        self.files.set(f"{name}/{self.rank}", "")
        self.files.wait([f"{name}/{rank}" for rank in range(3)], datetime.timedelta(seconds=60))

    def test_why_an_operation_could_not_begin(self):
        self.begin("/leader", timeout=_SHORT)
        if self.rank == 1:
            self.files.wait(["0//openreg//occl/wait_of_rank_0"], 20 * _SHORT)
            with self.raises(ValueError, "out of order"):
                self.all_reduce()
        for _ in range(2):
            with self.assertRaises(dist.DistBackendError):
                self.all_reduce()
        self.meet("over")

    def test_what_was_no_reason_is_not_told_for_a_later_failure(self):
        self.begin("/aborted")
        if self.rank < 2:
            for _ in range(2):
                with self.raises(dist.DistBackendError, "aborted by rank 2"):
                    self.all_reduce()
            self.assertEqual(self.store.raises_at, "")
        else:
            waits = [f"0//openreg//occl/wait_of_rank_{rank}" for rank in range(2)]
            self.files.wait(waits, datetime.timedelta(seconds=60))
            self.backend().abort()
        self.meet("over")


if __name__ == "__main__":
    run_tests()
