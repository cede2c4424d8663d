"""Abort and destroy on a rank that has not joined its group: the others wait for it."""

import contextlib
import datetime
import os
import queue
import select
import signal
import socket
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.common_utils import run_tests
from torch_openreg.distributed import ProcessGroupOCCL

from tests.distributed.harness import RankTestCase

# A wait on the host; the operations' own timeout is longer.
_PATIENCE = datetime.timedelta(seconds=50)
_STORE_WAIT = datetime.timedelta(seconds=50)
_WAIT_OF_RANK_0 = "openreg//occl/wait_of_rank_0"


@contextlib.contextmanager
def standard_error():
    """Takes what this process writes there; gives a function that reads it."""
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield lambda: os.pread(log.fileno(), 1 << 20, 0).decode()
        finally:
            os.dup2(kept, 2)
            os.close(kept)


class AbortTestCase(RankTestCase):
    """Rank 2 does not join, and ends the group."""

    ranks = 3

    def tensor(self, count=4):
        return torch.ones(count, device=self.device)

    def meet(self, name, store=None):
        """All ranks come here."""
        store = store or c10d._get_default_store()
        store.set(f"{name}/{self.rank}", str(os.getpid()))
        others = [f"{name}/{rank}" for rank in range(self.ranks)]
        store.wait(others, _STORE_WAIT)
        return [int(store.get(key)) for key in others]

    @contextlib.contextmanager
    def fails(self, pid, *fragments, word="aborted"):
        """The error names who ended what, long before the timeout."""
        begin = time.monotonic()
        with self.raises(dist.DistBackendError, word, f"rank 2 (pid {pid})", *fragments):
            yield
        print(f"rank {self.rank} was told after {time.monotonic() - begin:.3f} s")


class AbortBeforeJoiningTest(AbortTestCase):
    def begins_then_aborts(self, store):
        """Ranks 0 and 1 are about to wait, or wait already."""
        pid = self.meet("about to", store)[2]
        if self.rank == 2:
            self.backend().abort()
            with self.raises(dist.DistBackendError, "was aborted"):
                dist.all_reduce(self.tensor())
        else:
            with self.fails(pid, "all_reduce #1", "in group '0'", f"rank {self.rank} of 3"):
                dist.all_reduce(self.tensor())
        self.meet("over", store)

    def test_a_monitored_barrier_before_and_after_the_ranks_have_met(self):
        self.init()
        groups = [dist.new_group(range(3)), dist.new_group(range(3))]
        dist.all_reduce(self.tensor(), group=groups[1])
        torch.openreg.synchronize()
        for number, group in enumerate(groups):
            backend = self.backend(group)
            pid = self.meet(f"waiting {number}")[2]
            if self.rank == 2:
                time.sleep(0.3)  # the others wait
                backend.abort()
            else:
                with self.fails(pid, "monitored_barrier #1", f"rank {self.rank} of 3"):
                    backend.monitored_barrier(datetime.timedelta(seconds=200))
        self.meet("over")

    def test_destroy_ends_a_monitored_barrier_of_another_thread(self):
        self.init()
        store, backend = c10d._get_default_store(), self.backend()
        if self.rank == 0:
            destroy = threading.Timer(0.3, dist.destroy_process_group)
            destroy.start()
            with self.raises(dist.DistBackendError, "monitored_barrier #1", "been destroyed"):
                backend.monitored_barrier(datetime.timedelta(seconds=200))
            destroy.join()
            store.set("over", "")
        store.wait(["over"])

    def test_a_collective_in_a_file(self):
        self.init()
        self.begins_then_aborts(c10d._get_default_store())

    def server(self, port):
        """A store that rank 0 serves; `port` tells where."""
        if self.rank == 0:
            store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            port.set("port", str(store.port))
            return store
        return dist.TCPStore("localhost", int(port.get("port")), is_master=False)

    def test_a_collective_in_a_server(self):
        port = dist.FileStore(self.file_name, 3)
        store = self.server(port)
        dist.init_process_group("occl", store=store, rank=self.rank, world_size=3)
        self.begins_then_aborts(store)
        self.meet("all have read", port)

    def test_before_the_others_have_made_the_group(self):
        store = dist.FileStore(self.file_name, 3)
        if self.rank == 2:
            group = ProcessGroupOCCL(store, 2, 3, datetime.timedelta(seconds=60))
            group.abort()
        pid = self.meet("aborted", store)[2]
        if self.rank != 2:
            group = ProcessGroupOCCL(store, self.rank, 3, datetime.timedelta(seconds=60))
            with self.fails(pid, "all_reduce #1"):
                group.allreduce([self.tensor()])
        self.meet("over", store)

    def test_messages_between_others(self):
        self.init()
        work = None
        if self.rank == 0:
            dist.recv(self.tensor(), 1)
            torch.openreg.synchronize()
            work = dist.irecv(self.tensor(), 1)
        elif self.rank == 1:
            dist.send(self.tensor(), 0)
            torch.openreg.synchronize()
            work = dist.irecv(self.tensor(), 2)
        pid = self.meet("waiting")[2]
        if self.rank == 2:
            self.backend().abort()
        else:
            with self.fails(pid, "recv #"):
                work.wait(_PATIENCE)
        self.meet("over")

    def test_from_another_thread_while_this_one_waits_in_the_store(self):
        port = dist.FileStore(self.file_name, 3)
        store = self.server(port)
        dist.init_process_group("occl", store=store, rank=self.rank, world_size=3)
        pid = self.meet("about to", port)[2]
        if self.rank == 2:
            aborts = threading.Timer(0.2, self.backend().abort)
            aborts.start()
            store.wait(["released/0", "released/1"], _STORE_WAIT)
            aborts.join()
        else:
            with self.fails(pid, "barrier #1"):
                dist.barrier()
            store.set(f"released/{self.rank}", "")
        self.meet("over", port)

    def test_a_rank_that_has_joined_and_not_met_all(self):
        self.init()
        if self.rank == 2:
            dist.isend(self.tensor(100_000), 0)
            self.backend().abort()
        pid = self.meet("aborted")[2]
        if self.rank != 2:
            with self.fails(pid, "all_gather"):
                dist.all_gather([self.tensor() for _ in range(3)], self.tensor())
        self.meet("over")


class AbortOfAllGroupsTest(AbortTestCase):
    def test_subgroups_are_aborted_and_groups_of_others_go_on(self):
        self.init()
        never_joined = dist.new_group([0, 2])
        with_message = dist.new_group([1, 2])
        others = dist.new_group([0, 1])
        dist.barrier()
        work = None
        store = c10d._get_default_store()
        if self.rank == 1:
            work = dist.irecv(self.tensor(), 2, with_message)
        pid = self.meet("waiting", store)[2]
        if self.rank == 2:
            c10d._abort_process_group()
        elif self.rank == 0:
            with self.raises(dist.DistBackendError, "by rank 1 (pid", f"(pid {pid})"):
                dist.all_reduce(self.tensor(), group=never_joined)
        else:
            with self.raises(dist.DistBackendError, "by rank 1 (pid", f"(pid {pid})"):
                work.wait(_PATIENCE)
        if self.rank != 2:
            with self.fails(pid, "all_reduce"):
                dist.all_reduce(self.tensor(), async_op=True).wait(_PATIENCE)
            ones = self.tensor()
            dist.all_reduce(ones, group=others)
            self.assertEqual(ones.cpu(), torch.full((4,), 2.0))
        self.meet("over", store)

    def test_a_split_ends_when_its_parent_is_aborted(self):
        self.init()
        dist.barrier()
        pid = self.meet("about to")[2]
        if self.rank == 2:
            self.backend().abort()
        else:
            with self.fails(pid, "split"):
                self.backend().split(c10d._get_default_store(), [0, 1], None)
        self.meet("over")

    def test_a_new_world_in_the_same_store(self):
        # Ranks 0 and 1 have met in it, rank 2 has not: the next world is another for all.
        store = dist.FileStore(self.file_name, 3)
        for world in range(3):
            dist.init_process_group("occl", store=store, rank=self.rank, world_size=3)
            pid = self.meet(f"about to {world}", store)[2]
            if self.rank == 2:
                if world < 2:
                    c10d._abort_process_group()
            elif world < 2:
                with self.fails(pid, "all_reduce #1"):
                    dist.all_reduce(self.tensor())
            if world < 2 and self.rank != 2:
                dist.destroy_process_group()
        ones = self.tensor()
        dist.all_reduce(ones)
        self.assertEqual(ones.cpu(), torch.full((4,), 3.0))
        dist.destroy_process_group()


class DestroyBeforeJoiningTest(AbortTestCase):
    def test_who_waits_is_told(self):
        self.init()
        group = dist.new_group([0, 1, 2])
        store = c10d._get_default_store()
        pid = self.meet("about to", store)[2]
        if self.rank == 2:
            dist.destroy_process_group(group)
        else:
            with self.fails(pid, "all_reduce #1", word="destroyed the group before it came"):
                dist.all_reduce(self.tensor(), group=group)
        ones = self.tensor()
        dist.all_reduce(ones)  # the world goes on
        self.assertEqual(ones.cpu(), torch.full((4,), 3.0))

    def test_messages_between_others_go_on(self):
        self.init()
        group = dist.new_group([0, 1, 2])
        if self.rank == 2:
            dist.destroy_process_group(group)
        self.meet("left")
        found = torch.empty(4, device=self.device)
        if self.rank == 0:
            dist.send(self.tensor() * 7, 1, group)
            torch.openreg.synchronize()
        elif self.rank == 1:
            dist.recv(found, 0, group)
            self.assertEqual(found.cpu(), torch.full((4,), 7.0))
        dist.barrier()


class EndBeforeTheFirstMessageTest(AbortTestCase):
    """Messages wait for rank 2, which ends groups that it has not used."""

    def messages(self, group):
        """Ways to need global rank 2, each in a group of its own."""
        tensor, large = self.tensor(), self.tensor(100_000)
        return {
            "recv": lambda: dist.irecv(tensor, 2, group),
            "send": lambda: dist.isend(tensor, 2, group),
            "large send": lambda: dist.isend(large, 2, group),
            "any source": lambda: dist.irecv(tensor, group=group),
            "batch": lambda: dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, large, 2, group), dist.P2POp(dist.irecv, tensor, 2, group)]
            )[0],
        }

    def ends(self, groups, aborts):
        for group in groups:
            if aborts:
                self.backend(group).abort()
            else:
                dist.destroy_process_group(group)

    def messages_end(self, aborts, told):
        self.init()
        names = list(self.messages(None))
        for first in ("message", "end"):
            groups = [dist.new_group([0, 2]) for _ in names]
            if self.rank == 2 and first == "end":
                self.ends(groups, aborts)
            pid = self.meet(f"{first} 1")[2]
            works = []
            if self.rank == 0:
                calls = [
                    self.messages(group)[name] for name, group in zip(names, groups, strict=True)
                ]
                if first == "message":
                    works = [call() for call in calls]
            self.meet(f"{first} 2")
            if self.rank == 2 and first == "message":
                self.ends(groups, aborts)
            if self.rank == 0:
                for place, name in enumerate(names):
                    with self.subTest(first=first, message=name):
                        begin = time.monotonic()
                        with self.raises(dist.DistBackendError, told.format(pid=pid)):
                            (works[place] if works else calls[place]()).wait(_PATIENCE)
                        took_s = time.monotonic() - begin
                        print(f"{name} was told after {took_s:.3f} s")
            self.meet(f"{first} 3")

    def test_a_rank_destroys(self):
        self.messages_end(False, "rank 1 (pid {pid}) destroyed the group before it came")

    def test_a_rank_aborts(self):
        self.messages_end(True, "aborted by rank 1 (pid {pid})")

    def test_others_go_on_until_they_need_it(self):
        self.init()
        group = dist.new_group([0, 1, 2])
        found = self.tensor()
        for value in (3, 4):
            if self.rank == 0:
                dist.recv(found, group=group)
                self.assertEqual(found.cpu(), torch.full((4,), float(value)))
            elif self.rank == 1:
                dist.send(self.tensor() * value, 0, group)
            if value == 3 and self.rank == 2:
                dist.destroy_process_group(group)
            pid = self.meet(f"sent {value}")[2]
        if self.rank == 0:
            with self.raises(dist.DistBackendError, f"rank 2 (pid {pid}) destroyed the group"):
                dist.irecv(found, 2, group).wait(_PATIENCE)
        self.meet("over")


class DestroyWaitsTest(AbortTestCase):
    """Rank 0 destroys a group in which rank 1 has not come to the last collective."""

    ranks = 2

    def begin(self):
        """The group, what is pending in it on rank 0, where that arrives, rank 1's process."""
        self.init()
        group = dist.new_group([0, 1])
        ones = self.tensor()
        dist.all_reduce(ones, group=group)
        pid = self.meet("joined")[1]
        ones = self.tensor()
        work = dist.all_reduce(ones, group=group, async_op=True) if self.rank == 0 else None
        return group, work, ones, pid

    def test_it_says_for_whom_and_a_late_rank_loses_nothing(self):
        group, work, ones, pid = self.begin()
        store = c10d._get_default_store()
        if self.rank == 0:
            with standard_error() as read:
                leaves = threading.Thread(target=dist.destroy_process_group, args=(group,))
                leaves.start()
                end = time.monotonic() + 60
                while "_abort_process_group" not in read() and time.monotonic() < end:
                    time.sleep(0.05)
                told = read()
                store.set("warned", "")
                leaves.join()
            expected = "all_reduce #2 on rank 0 of 2 in group '1'"
            self.assertIn(f"{expected}, waiting for rank(s) 1 (pid {pid}) whose last", told)
            self.assertIsNone(work.exception())
        else:
            store.wait(["warned"], 2 * _STORE_WAIT)
            dist.all_reduce(ones, group=group)
        self.assertEqual(ones.cpu(), torch.full((4,), 2.0))
        self.meet("over")

    def begin_first_use(self, read):
        """The group, whose first collective another thread of rank 0 waits in, and what it gets.

        A rank that has not come is said on rank 0's stderr (`read`) once it destroys the group;
        then "warned" is in the store.
        """
        self.init()
        group = dist.new_group([0, 1])
        ended = queue.Queue()

        def use():
            try:
                ones = self.tensor()
                dist.all_reduce(ones, group=group)
                ended.put(ones.cpu())
            except dist.DistBackendError as error:
                ended.put(error)

        def watch(store):
            end = time.monotonic() + 60
            while "_abort_process_group" not in read() and time.monotonic() < end:
                time.sleep(0.05)
            store.set("warned", "")

        if self.rank == 0:
            threading.Thread(target=use).start()
            threading.Thread(target=watch, args=(c10d._get_default_store(),)).start()
            # Where the thread says that it waits.
            dist.group.WORLD.get_group_store().wait([_WAIT_OF_RANK_0], _STORE_WAIT)
        return group, ended

    def test_it_says_for_whom_another_thread_waits(self):
        with standard_error() as read:
            group, ended = self.begin_first_use(read)
            if self.rank == 0:
                dist.destroy_process_group(group)
                self.assertEqual(ended.get(timeout=60), torch.full((4,), 2.0))
                expected = "all_reduce #1 on rank 0 of 2 in group '1', in another thread: the"
                expected += " group's first use, to which rank(s) 1 have not come. It waits"
                self.assertIn(expected, read())
            else:
                c10d._get_default_store().wait(["warned"], 2 * _STORE_WAIT)
                dist.all_reduce(ones := self.tensor(), group=group)
                self.assertEqual(ones.cpu(), torch.full((4,), 2.0))
        self.meet("over")

    def test_an_interrupt_ends_it_while_another_thread_waits(self):
        with standard_error() as read:
            group, ended = self.begin_first_use(read)
            if self.rank == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)

                def interrupt():
                    c10d._get_default_store().wait(["warned"], 2 * _STORE_WAIT)
                    os.kill(os.getpid(), signal.SIGINT)

                threading.Thread(target=interrupt).start()
                with self.assertRaises(KeyboardInterrupt):
                    dist.destroy_process_group(group)
                    time.sleep(60)  # destroyed before the interrupt came
                error = ended.get(timeout=60)
                self.assertIn("was aborted by rank 0 of 2, which destroys it", str(error))
        self.meet("over")

    def test_an_interrupt_ends_it(self):
        group, work, _, _ = self.begin()
        if self.rank == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            interrupt.start()
            with self.assertRaises(KeyboardInterrupt):
                dist.destroy_process_group(group)
                time.sleep(60)  # destroyed before the interrupt came
            with self.raises(dist.DistBackendError, "was destroyed on rank 0 while"):
                work.wait(_PATIENCE)
        self.meet("over")


class Relay:
    """Passes connections on to another port of this host, and counts them."""

    def __init__(self, port):
        self.connections = 0
        self._target = port
        self._listener = socket.create_server(("localhost", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client = self._listener.accept()[0]
            self.connections += 1
            server = socket.create_connection(("localhost", self._target))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)


class StoreConnectionsTest(AbortTestCase):
    """For a new connection torch asks the name service, which may take seconds."""

    ranks = 2

    def test_not_one_for_each_group(self):
        port = dist.FileStore(self.file_name, 2)
        if self.rank == 0:
            store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            port.set("port", str(store.port))
            port.wait(["over"], _STORE_WAIT)
            return
        relay = Relay(int(port.get("port")))
        store = dist.TCPStore("localhost", relay.port, is_master=False)
        before = relay.connections
        timeout = datetime.timedelta(seconds=60)
        groups = [
            ProcessGroupOCCL(dist.PrefixStore(str(i), store), 1, 2, timeout) for i in range(30)
        ]
        for group in groups[:15]:
            group.abort()
        for group in groups[15:]:
            group.shutdown()
        told = [f"{i}/occl/communicators/1/occl/unnamed/aborted" for i in range(15)]
        told += [f"{i}/occl/communicators/1/occl/unnamed/left/1" for i in range(15, 30)]
        store.wait(told, _STORE_WAIT)
        # None, but where the relay had no processor for too long.
        self.assertLess(relay.connections - before, 15)
        port.set("over", "")


class StoreHasGoneTest(AbortTestCase):
    ranks = 2

    def test_abort_and_destroy_say_nothing(self):
        port = dist.FileStore(self.file_name, 2)
        if self.rank == 0:
            store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            port.set("port", str(store.port))
            port.set("pid", str(os.getpid()))
            port.wait(["made"], _STORE_WAIT)
            os._exit(0)
        store = dist.TCPStore("localhost", int(port.get("port")), is_master=False)
        server = os.pidfd_open(int(port.get("pid")))
        timeout = datetime.timedelta(seconds=60)
        groups = [
            ProcessGroupOCCL(dist.PrefixStore(str(i), store), 1, 2, timeout) for i in range(4)
        ]
        port.set("made", "")
        # All its descriptors are closed.
        self.assertTrue(select.select([server], [], [], 60)[0])
        with standard_error() as read:
            begin = time.monotonic()
            for group in groups[:2]:
                group.abort()
            for group in groups:
                group.shutdown()
            print(f"gone after {time.monotonic() - begin:.3f} s")
            self.assertEqual(read(), "")


class StoreDoesNotAnswerTest(AbortTestCase):
    ranks = 2

    def test_what_waits_is_released_and_abort_returns(self):
        port = dist.FileStore(self.file_name, 2)
        if self.rank == 0:
            store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            port.set("port", str(store.port))
            port.set("pid", str(os.getpid()))
            port.wait(["over"], _STORE_WAIT)
            return
        store = dist.TCPStore("localhost", int(port.get("port")), is_master=False)
        timeout = datetime.timedelta(seconds=60)
        groups = [
            ProcessGroupOCCL(dist.PrefixStore(str(i), store), 1, 2, timeout) for i in range(20)
        ]
        work = groups[-1].recv([self.tensor()], 0, 0)
        server = int(port.get("pid"))
        os.kill(server, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            for group in groups:
                group.abort()
            took_s = time.monotonic() - begin
            with self.raises(dist.DistBackendError, "recv #1", "was aborted by rank 1 of 2"):
                work.wait(_PATIENCE)
        finally:
            os.kill(server, signal.SIGCONT)
            port.set("over", "")
        print(f"20 groups were aborted after {took_s:.3f} s")
        self.assertLess(took_s, 15)  # not a second for each


if __name__ == "__main__":
    run_tests()
