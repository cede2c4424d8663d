"""Every form of init_process_group, with every rendezvous."""

import datetime
import os

import torch
import torch.distributed as dist
from harness import OPERATION_TIMEOUT, RankTestCase
from torch.testing._internal.common_utils import instantiate_parametrized_tests, parametrize

FORMS = {
    "backend": {"backend": "occl"},
    "device_id": {"device_id": torch.device("openreg:0")},
    "mixed": {"backend": "cpu:gloo,openreg:occl"},
}


@instantiate_parametrized_tests
class InitTest(RankTestCase):
    def rendezvous(self, kind):
        if kind == "file":
            return {"init_method": f"file://{self.file_name}"}
        if kind == "store":
            return {"store": dist.FileStore(self.file_name, self.world_size)}
        port = self.agreed_port()
        if kind == "tcp":
            return {"init_method": f"tcp://localhost:{port}"}
        os.environ.update(
            MASTER_ADDR="localhost",
            MASTER_PORT=str(port),
            RANK=str(self.rank),
            WORLD_SIZE=str(self.world_size),
        )
        return {"init_method": "env://"}

    def agreed_port(self):
        # Rank 0 asks for a free port; the others learn it through the file.
        store = dist.FileStore(self.file_name, self.world_size)
        store.set_timeout(OPERATION_TIMEOUT)
        if self.rank == 0:
            probe = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            store.set("port", str(probe.port))
            del probe
        return int(store.get("port"))

    def check_group(self):
        for step in range(3):
            tensor = torch.full((4,), float(self.rank + step), device=self.device)
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            torch.openreg.synchronize()
            self.assertTrue(work.is_completed())
            self.assertTrue(work.is_success())
            expected = float(sum(rank + step for rank in range(self.world_size)))
            self.assertEqual(tensor.cpu(), torch.full((4,), expected))

    def test_a_group_with_other_backends_has_occl_as_its_default(self):
        # Without one, destroy_process_group warns on every rank.
        group = self.init("cpu:gloo,openreg:occl")
        self.assertEqual(group.name(), "custom")
        dist.destroy_process_group()

    @parametrize("form", list(FORMS))
    @parametrize("kind", ["env", "tcp", "file", "store"])
    def test_init_communicate_destroy(self, form, kind):
        dist.init_process_group(
            rank=self.rank if kind != "env" else -1,
            world_size=self.world_size if kind != "env" else -1,
            timeout=OPERATION_TIMEOUT,
            **FORMS[form],
            **self.rendezvous(kind),
        )
        self.check_group()
        if form == "mixed":
            on_cpu = torch.ones(2)
            dist.all_reduce(on_cpu)
            self.assertEqual(on_cpu, torch.full((2,), float(self.world_size)))
        dist.barrier()
        dist.destroy_process_group()
        self.assertFalse(dist.is_initialized())

    def test_init_again_in_the_same_process_and_store(self):
        store = dist.FileStore(self.file_name, self.world_size)
        for _ in range(3):
            dist.init_process_group(
                "occl",
                store=store,
                rank=self.rank,
                world_size=self.world_size,
                timeout=OPERATION_TIMEOUT,
            )
            self.check_group()
            dist.destroy_process_group()

    def test_a_very_long_timeout(self):
        no_limit = datetime.timedelta(days=200_000)
        self.init(timeout=no_limit)
        tensor = torch.ones(4, device=self.device)
        dist.all_reduce(tensor)
        self.backend().monitored_barrier(no_limit)
        self.assertEqual(tensor.cpu(), torch.full((4,), float(self.ranks)))

    def test_the_bound_device_is_connected_at_once(self):
        self.init(backend=None, device_id=self.device)
        self.assertEqual(dist.get_backend(), "occl")
        self.assertEqual(dist.group.WORLD.bound_device_id, self.device)
        self.assertEqual(self.backend().memory_stats()["operations"], 0)
        dist.barrier()
        self.assertGreater(self.backend().memory_stats()["operations"], 0)

    def test_ranks_on_devices_of_their_own(self):
        self.init()
        torch.openreg.set_device(self.rank)
        tensor = torch.full((3,), self.rank + 1.0, device=f"openreg:{self.rank}")
        dist.all_reduce(tensor)
        dist.barrier()
        self.assertEqual(tensor.cpu(), torch.full((3,), 3.0))

    def test_cpu_tensors_are_refused(self):
        self.init()
        with self.raises(RuntimeError, "No backend type associated with device type cpu"):
            dist.all_reduce(torch.zeros(1))
        with self.raises(ValueError, "expected openreg tensors, got one on cpu", "rank"):
            self.backend().allreduce([torch.zeros(1)])
        self.check_group()
