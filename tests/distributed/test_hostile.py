"""Other processes of this user talk to every socket of the ranks: they go on as if nobody did."""

import datetime
import os
import subprocess
import sys
import time

import torch.distributed as dist
from harness import OPERATION_TIMEOUT, RankTestCase, read_line, values

_STRANGERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "strangers.py")


class StrangersTest(RankTestCase):
    ranks = 2

    def check(self, group=None):
        tensor = values(self.rank, 70_000).to(self.device)
        dist.all_reduce(tensor, group=group)
        self.assertEqual(tensor.cpu(), values(0, 70_000) + values(1, 70_000))

    def test_ranks_go_on_while_strangers_talk_to_their_sockets(self):
        end_file = f"{self.file_name}-end-{self.rank}"
        stranger = subprocess.Popen(
            [sys.executable, _STRANGERS, str(2026 + self.rank), end_file],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.assertEqual(read_line(stranger.stdout), "begun\n")
            self.init()
            deadline = time.monotonic() + 5
            for number in range(200):
                group = dist.new_group([0, 1], timeout=OPERATION_TIMEOUT)
                self.check(group)
                dist.destroy_process_group(group)
                over = time.monotonic() > deadline
                store = dist.group.WORLD.get_group_store()
                store.set(f"{number}/{self.rank}", str(int(over)))
                keys = [f"{number}/0", f"{number}/1"]
                store.wait(keys, datetime.timedelta(seconds=60))
                if any(store.get(key) == b"1" for key in keys):
                    break
            self.check()
        finally:
            with open(end_file, "w"):
                pass
            entered = int(stranger.communicate(timeout=60)[0])
        os.remove(end_file)
        print(f"rank {self.rank}: {entered} strangers were let in and turned away")
        self.assertGreater(entered, 0)
        self.check()
