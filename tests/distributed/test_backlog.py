"""The host runs ahead of its operations, but not without bound."""

import os
import signal
import threading

import torch
import torch.distributed as dist
from harness import OPERATION_TIMEOUT, RankTestCase, values
from torch.testing._internal.common_utils import run_tests

# As many as may run; then the host waits.
MOST = 1024


class BacklogTest(RankTestCase):
    def begin(self):
        self.init()
        dist.barrier()
        self.files = dist.FileStore(f"{self.file_name}.marks", self.ranks)

    def tearDown(self):
        super().tearDown()
        if os.path.exists(f"{self.file_name}.marks"):
            os.remove(f"{self.file_name}.marks")

    def test_memory(self):
        # 2 GB altogether, of which nobody waits for any.
        self.begin()
        count = 500_000
        for number in range(1000):
            tensor = torch.full((count,), float(number + self.rank), device=self.device)
            if number % 2 == 0:
                dist.all_reduce(tensor)
            else:
                dist.all_reduce(tensor, async_op=True).wait()
            self.assertLess(torch.openreg.memory_allocated(), 320 << 20)
        self.assertEqual(tensor.cpu(), torch.full((count,), 2.0 * number + 1))

    def test_messages(self):
        # Each rank receives nothing before it has issued more sends than may run.
        self.begin()
        peer = 1 - self.rank
        sent = [
            dist.isend(values(self.rank + number, 3).to(self.device), peer)
            for number in range(MOST + 200)
        ]
        for number in range(len(sent)):
            received = torch.empty(3, device=self.device)
            dist.recv(received, peer)
            self.assertEqual(received.cpu(), values(peer + number, 3))
        for work in sent:
            work.wait()

    def test_ctrl_c(self):
        self.begin()
        ones = torch.ones(3, device=self.device)
        if self.rank == 0:
            press = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
            with self.assertRaises(KeyboardInterrupt):
                for number in range(MOST + 1):
                    if number == MOST:
                        press.start()
                    dist.all_reduce(ones, async_op=True)
            press.join()
            self.files.set("pressed", "")
        else:
            self.files.wait(["pressed"], OPERATION_TIMEOUT)
            for _ in range(MOST):
                dist.all_reduce(ones, async_op=True)
        torch.openreg.synchronize()


if __name__ == "__main__":
    run_tests()
