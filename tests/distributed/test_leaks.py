"""Nothing is left by world after world: descriptors, threads, mappings, processes, memory, files.

LEAK_ROUNDS says how many; `tools/bazel test //tests/distributed:leaks_long_test` does 1,000.
"""

import contextlib
import datetime
import gc
import os
import re
import time

import torch
import torch.distributed as dist
from harness import RankTestCase
from torch.testing._internal import common_distributed

LONG = datetime.timedelta(seconds=60)
ROUNDS = int(os.environ.get("LEAK_ROUNDS", "15"))
WARM_UP = 10
# Other programs put files into /dev/shm as well.
OURS = re.compile(rf"occl|openreg|_{os.getpid()}_")
# A stream that is given back is used again, and keeps its worker: a process has as many as it once
# needed at a time, which is a matter of chance up to here.
KEPT_WORKERS = 8
# torch's harness gives up after this many seconds.
common_distributed.TIMEOUT_OVERRIDE["test_nothing_is_left_by_world_after_world"] = 240 + 4 * ROUNDS


def holdings():
    """What this process has now."""
    gc.collect()
    torch.openreg.synchronize()
    with open("/proc/self/maps") as maps:
        mappings = sum("memfd:" in line for line in maps)
    descriptors = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of this listing
            descriptors.append(os.readlink(f"/proc/self/fd/{name}"))
    threads = []
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{name}/comm") as comm:
            threads.append(comm.read())
    workers = sum(thread.startswith("openreg-0-") for thread in threads)
    with open("/proc/thread-self/children") as children:
        processes = len(children.read().split())
    return {
        "descriptors": len(descriptors),
        "sockets": sum(target.startswith("socket:") for target in descriptors),
        "threads": len(threads) - workers,
        "workers of streams": max(workers, KEPT_WORKERS),
        "processes": processes,
        "mappings": mappings,
        "device memory": torch.openreg.memory_allocated(0),
        "files in /dev/shm": sum(bool(OURS.search(name)) for name in os.listdir("/dev/shm")),
    }


class LeakTest(RankTestCase):
    def world(self, number):
        """One world from init to destroy, with an ending that depends on its number."""
        self.init(init_method=f"file://{self.file_name}.{number}")
        tensor = torch.full((5000,), self.rank + 1.0, device=self.device)
        dist.all_reduce(tensor)
        self.assertEqual(tensor[7].item(), 3.0)
        if self.rank == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
        group = dist.new_group([0, 1])
        dist.barrier(group)
        # Both have done with the barrier before one of them may fail the group.
        self.meet(f"agreed {number}")
        ending = number % 5
        if ending == 1:  # the ranks disagree
            with self.assertRaises(dist.DistBackendError):
                wrong = torch.ones(4 + self.rank, device=self.device)
                dist.all_reduce(wrong, group=group, async_op=True).wait(LONG)
        elif ending == 2:  # one rank aborts
            if self.rank == 0:
                self.backend(group).abort()
            with self.assertRaises(dist.DistBackendError):
                dist.all_reduce(tensor, group=group, async_op=True).wait(LONG)
        elif ending == 3 and self.rank == 0:  # destroyed with a receive that nobody answers
            dist.irecv(tensor, 1)
        elif ending == 4:  # a subgroup that is destroyed on its own, and a split
            dist.destroy_process_group(group)
            dist.new_group([self.rank], use_local_synchronization=True)
        self.meet(f"used {number}")
        dist.destroy_process_group()
        self.meet(f"destroyed {number}")
        if self.rank == 0:
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{self.file_name}.{number}")

    def meet(self, where):
        """Until both ranks are here: in a store that outlives the worlds."""
        self.store.set(f"{where}/{self.rank}", "1")
        self.store.wait([f"{where}/0", f"{where}/1"])

    def test_nothing_is_left_by_world_after_world(self):
        self.store = dist.FileStore(self.file_name + "-meetings", 2)
        for number in range(WARM_UP):
            self.world(number)
        before = holdings()
        for number in range(WARM_UP, WARM_UP + ROUNDS):
            self.world(number)
        deadline = time.monotonic() + 30  # threads that have ended may be in /proc for a moment
        now = holdings()
        while any(now[kind] > before[kind] for kind in before) and time.monotonic() < deadline:
            time.sleep(0.05)
            now = holdings()
        print(f"rank {self.rank}: {ROUNDS} rounds, {before} became {now}")
        for kind, amount in before.items():
            self.assertLessEqual(now[kind], amount, f"{kind}: {before} became {now}")
