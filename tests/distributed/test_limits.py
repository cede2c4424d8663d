"""A process without descriptors, addresses or memory gets errors that say so, and lives on."""

import contextlib
import datetime
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
import torch.distributed as dist
from harness import OPERATION_TIMEOUT, RankTestCase, read_line, values

DEADLINE_S = 120


@contextlib.contextmanager
def limited(kind, soft):
    """With a soft limit; it can be taken back because the hard one stays."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def address_space():
    """Bytes of addresses that this process uses."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


class LimitsTest(RankTestCase):
    def check(self, group=None):
        for count in (5, 70_000):
            tensor = values(self.rank, count).to(self.device)
            dist.all_reduce(tensor, group=group)
            self.assertEqual(tensor.cpu(), values(0, count) + values(1, count))

    def meet(self, where):
        store = dist.group.WORLD.get_group_store()
        store.set(f"{where}/{self.rank}", "1")
        store.wait([f"{where}/0", f"{where}/1"], OPERATION_TIMEOUT)

    def test_no_descriptors(self):
        # Rank 1 is short of them when a group is made: it is told, and rank 0 as well, but for what
        # befalls torch's store, which is told at the deadline.
        self.init()
        self.check()
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        for left in range(1, 5):
            group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=3))
            self.meet(f"made {left}")
            with contextlib.ExitStack() as stack:
                if self.rank == 1:
                    stack.enter_context(limited(resource.RLIMIT_NOFILE, highest + left))
                try:
                    self.check(group)
                except dist.DistError as error:
                    print(f"{left} left, rank {self.rank}: {error}")
                    if isinstance(error, dist.DistBackendError):
                        self.assertIn(f"rank {self.rank} of 2", str(error))
            self.meet(f"tried {left}")
        self.check()
        self.check(dist.new_group([0, 1]))

    def test_few_descriptors_on_the_rank_that_comes_first(self):
        # Either both can use the group, or both are told why not, at once.
        self.init()
        self.check()
        store = dist.group.WORLD.get_group_store()
        told = []
        for left in range(1, 14):
            highest = max(int(name) for name in os.listdir("/proc/self/fd"))
            group = dist.new_group([0, 1], timeout=OPERATION_TIMEOUT)
            self.meet(f"made {left}")
            error = ""
            with contextlib.ExitStack() as stack:
                if self.rank == 0:
                    stack.enter_context(limited(resource.RLIMIT_NOFILE, highest + 1 + left))
                else:
                    store.wait([f"came {left}"], OPERATION_TIMEOUT)
                try:
                    if self.rank == 0:
                        work = dist.irecv(torch.empty(1, device=self.device), 1, group)
                        self.tell_without_limit(f"came {left}")
                        work.wait()
                    else:
                        dist.send(torch.ones(1, device=self.device), 0, group)
                    self.check(group)
                except (dist.DistError, RuntimeError) as failure:
                    error = str(failure)
                    print(f"{left} left, rank {self.rank}: {error}")
                    self.assertIn("oo many open files", error)
                if self.rank == 0:
                    self.tell_without_limit(f"came {left}")
            self.meet(f"tried {left}")
            store.set(f"told {left}/{self.rank}", str(int(bool(error))))
            self.assertEqual(store.get(f"told {left}/0"), store.get(f"told {left}/1"))
            told.append(bool(error))
        self.assertFalse(told[-1])
        self.check()
        self.check(dist.new_group([0, 1]))

    def tell_without_limit(self, mark):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with limited(resource.RLIMIT_NOFILE, hard):
            dist.group.WORLD.get_group_store().set(mark, "1")

    def test_no_addresses(self):
        self.init()
        self.check()
        group = dist.new_group([0, 1])
        self.meet("made")
        with contextlib.ExitStack() as stack:
            if self.rank == 1:
                stack.enter_context(limited(resource.RLIMIT_AS, address_space() + 400_000))
            with self.raises(dist.DistBackendError, "Cannot allocate memory"):
                dist.barrier(group)
        self.meet("tried")
        self.check()
        self.check(dist.new_group([0, 1]))

    def test_no_device_memory(self):
        # The errors of the device are torch's; the group is as good as before.
        self.init()
        self.check()
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(1 << 50, dtype=torch.uint8, device=self.device)
        self.check()


def own_cgroup(limit_bytes):
    """A folder of a memory cgroup with this limit; needs the right to make one."""
    with open("/proc/self/cgroup") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in lines:
        v2 = controllers == ""
        if not v2 and "memory" not in controllers.split(","):
            continue
        root = "/sys/fs/cgroup" + ("" if v2 else "/memory")
        folder = os.path.join(root + path, f"torch-openreg-test-{os.getpid()}")
        name = "memory.max" if v2 else "memory.limit_in_bytes"
        try:
            os.mkdir(folder)
            with open(os.path.join(folder, name), "w") as file:
                file.write(str(limit_bytes))
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
            continue
        return folder
    return None


@contextlib.contextmanager
def ranks_in_cgroup(limit_bytes):
    """A folder as own_cgroup's, and a list for processes, which end with it."""
    folder = own_cgroup(limit_bytes)
    if folder is None:
        pytest.skip("needs the right to make a memory cgroup")
    processes = []
    try:
        yield folder, processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        _remove(folder)


_FILL = """
    import os, sys, torch, torch_openreg
    touches = sys.argv[1] == "touches"
    print("begun", flush=True)
    sys.stdin.readline()
    pieces = []
    try:
        while len(pieces) < 1000:
            pieces.append(torch.empty(8 << 20, dtype=torch.uint8, device="openreg"))
            if touches:
                pieces[-1].fill_(len(pieces) % 251)
    except torch.OutOfMemoryError as error:
        assert "out of memory" in str(error)
    torch.openreg.synchronize()
    for number, piece in enumerate(pieces, 1):
        if not touches:
            piece.fill_(number % 251)
        assert piece[-1].item() == number % 251
    print(len(pieces), "pieces", flush=True)
"""


@pytest.mark.parametrize(
    ("ranks", "how"),
    [
        (1, "touches"),
        (1, "promises"),
        (2, "touches"),
        (2, "promises"),
        (3, "promises"),
    ],
)
def test_the_limit_of_a_cgroup_is_an_error_before_the_kernel_kills(ranks, how):
    with ranks_in_cgroup(1200 << 20) as (folder, processes):
        for _ in range(ranks):
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(_FILL), how],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    preexec_fn=lambda: _move_into(folder),
                )
            )
        for process in processes:
            assert read_line(process.stdout, DEADLINE_S) == "begun\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=DEADLINE_S)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * ranks
        pieces = [int(output.split()[0]) for output in outputs]
        assert all(0 < number < 150 for number in pieces), pieces
        if ranks == 1:
            assert pieces[0] > 40  # most of it can be used


# Rank 0 offers memory that nobody has written; what is in it does not matter.
_OFFER = """
    import os, sys, torch, torch.distributed as dist, torch_openreg
    rank, place = int(sys.argv[1]), sys.argv[2]
    store = dist.FileStore(os.path.join(place, "store"), 2)
    dist.init_process_group("occl", store=store, rank=rank, world_size=2)
    dist.barrier()
    target = torch.empty(8 << 20, dtype=torch.uint8, device="openreg")
    offers = []
    for number in range(40):
        for move in (dist.send, lambda tensor, peer: dist.broadcast(tensor, 0)):
            if rank == 0:
                offers.append(torch.empty_like(target))
                move(offers[-1], 1)
            else:
                (dist.recv if move is dist.send else move)(target, 0)
    outputs = [torch.empty_like(target) for _ in range(2)]
    dist.all_gather(outputs, target.fill_(rank + 1))
    assert [output[-1].item() for output in outputs] == [1, 2]
    print("done", flush=True)
    dist.destroy_process_group()
"""


def test_a_rank_is_not_killed_for_pages_of_a_peer_in_another_cgroup(tmp_path):
    with ranks_in_cgroup(500 << 20) as (folder, processes):
        for rank in range(2):
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(_OFFER), str(rank), str(tmp_path)],
                    stdout=subprocess.PIPE,
                    text=True,
                    preexec_fn=(lambda: _move_into(folder)) if rank == 1 else None,
                )
            )
        outputs = [process.communicate(timeout=DEADLINE_S)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        assert outputs == ["done\n"] * 2


def _move_into(folder):
    with open(os.path.join(folder, "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))


def _remove(folder):
    # The last process may be in it for a moment after it was waited for.
    deadline = time.monotonic() + 10
    while True:
        try:
            os.rmdir(folder)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_a_small_dev_shm_does_not_matter():
    # In a mount namespace of its own, where that is allowed.
    program = """
        import ctypes, os, sys
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x00020000) != 0 and libc.unshare(0x10020000) != 0:
            print("no namespaces")
            sys.exit(0)
        if libc.mount(b"none", b"/", None, 0x44000, None) != 0 or libc.mount(
            b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=1m"
        ) != 0:
            print("no mounts")
            sys.exit(0)
        assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 1 << 20
        import torch, torch.distributed as dist, torch_openreg
        def run(rank):
            dist.init_process_group(
                "occl", init_method="file://" + sys.argv[1], rank=rank, world_size=3
            )
            tensor = torch.full((5_000_000,), rank + 1.0, device="openreg")
            dist.all_reduce(tensor)
            assert tensor[4_999_999].item() == 6.0
            assert os.listdir("/dev/shm") == []
            dist.destroy_process_group()
        children = []
        for rank in range(3):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    run(rank)
                    code = 0
                finally:
                    os._exit(code)
            children.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
        print("done")
    """
    store = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), f"store-{os.getpid()}")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), store],
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, signal.strsignal(-done.returncode) if done.returncode < 0 else ""
    if done.stdout.strip() != "done":
        pytest.skip(f"needs the right to mount: {done.stdout.strip()}")
