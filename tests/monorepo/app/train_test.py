"""torch_openreg from another repository: two ranks all-reduce, beside a package of its own."""

import os
import tempfile
import unittest

import einops
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD_SIZE = 2


def all_reduce(rank, rendezvous):
    """One rank: sums a rearranged tensor over all ranks and checks the result."""
    import torch_openreg  # noqa: F401

    dist.init_process_group(
        "occl", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD_SIZE
    )
    tensor = torch.arange(6.0, device="openreg:0").add(rank)
    tensor = einops.rearrange(tensor, "(a b) -> b a", a=2).contiguous()
    dist.all_reduce(tensor)
    torch.openreg.synchronize()
    expected = torch.tensor([[1.0, 7.0], [3.0, 9.0], [5.0, 11.0]])
    torch.testing.assert_close(tensor.cpu(), expected)
    dist.destroy_process_group()


class EmbeddingTest(unittest.TestCase):
    def test_two_ranks_all_reduce(self):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(all_reduce, args=(os.path.join(folder, "store"),), nprocs=WORLD_SIZE)

    def test_packages_come_from_where_they_should(self):
        self.assertIn("monorepo_pypi", einops.__file__)
        self.assertIn("torch_openreg", torch.__file__)


if __name__ == "__main__":
    unittest.main()
