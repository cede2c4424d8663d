"""The sanitizer with collectives, and the programs of docs/sanitizer.md.

As in tests/device/test_sanitizer.py, comments mark the lines that have to be found.
"""

import contextlib
import gc
import io
import linecache
import os
import queue
import re
import unittest.mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from harness import RankTestCase
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.openreg import sanitizer

N = 256
FUNCTIONAL = torch.ops._c10d_functional
_DOCUMENT = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "sanitizer.md")


def programs():
    """[(title, wrong program, what it prints, right program)] of the documentation."""
    with open(_DOCUMENT) as file:
        sections = file.read().split("\n### ")[1:]
    found = []
    for section in sections:
        wrong, right = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        (printed,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
        found.append((section.partition("\n")[0], wrong, printed, right))
    return found


def without_numbers(text):
    """A message without what differs from run to run: addresses and streams."""
    return re.sub(r"0x[0-9a-f]+", "0x", re.sub(r"\bstream \d+", "stream", text)).strip()


def ones(count=N):
    return torch.ones(count, device="openreg")


def read_before_wait(peer):
    x = ones()
    work = dist.all_reduce(x, async_op=True)  # first
    y = x + 1  # second
    return work, y


def write_before_wait(peer):
    x = ones()
    work = dist.all_reduce(x, async_op=True)  # first
    x.zero_()  # second
    return work


def write_into_an_input(peer):
    x, out = ones(), ones(2 * N)
    work = dist.all_gather_into_tensor(out, x, async_op=True)  # first
    x.add_(1)  # second
    return work


def write_into_a_part_of_an_input(peer):
    x, out = ones(2 * N), ones()
    work = dist.reduce_scatter_tensor(out, x, async_op=True)  # first
    x[-1:].zero_()  # second
    return work


def read_of_one_output(peer):
    x, outs = ones(), [ones(), ones()]
    work = dist.all_gather(outs, x, async_op=True)  # first
    outs[1].sum()  # second
    return work


def an_input_of_all_to_all(peer):
    x, out = ones(2 * N), ones(2 * N)
    work = dist.all_to_all_single(out, x, async_op=True)  # first
    x[N:].mul_(2)  # second
    return work


def a_broadcast(peer):
    x = ones()
    work = dist.broadcast(x, 0, async_op=True)  # first
    x.fill_(2)  # second
    return work


def a_receive_buffer(peer):
    x, y = ones(), ones()
    sending = dist.isend(x, peer)
    receiving = dist.irecv(y, peer)  # first
    y.sum()  # second
    return sending, receiving


def a_batch_of_messages(peer):
    x, y = ones(), ones()
    ops = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]
    works = dist.batch_isend_irecv(ops)  # first
    x.zero_()  # second
    return works


def a_coalesced_operation(peer):
    xs = [ones(), ones()]
    with dist._coalescing_manager(async_ops=True) as manager:  # first
        for x in xs:
            dist.all_reduce(x)  # first
    xs[1].sum()  # second
    return manager


def a_collective_reads_what_a_stream_writes(peer):
    x, side = ones(), torch.openreg.Stream()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        x.add_(1)  # first
    dist.all_reduce(x)  # second


def two_collectives_of_two_groups(peer):
    x = ones()
    work = dist.all_reduce(x, async_op=True)  # first
    other = dist.all_reduce(x, group=_groups[0], async_op=True)  # second
    return work, other


def a_wait_of_another_work(peer):
    x, y = ones(), ones()
    work = dist.all_reduce(x, group=_groups[0], async_op=True)  # first
    dist.all_reduce(y, async_op=True).wait()
    x.sum()  # second
    return work


def a_functional_collective(peer):
    x = ones()
    y = FUNCTIONAL.all_reduce(x, "sum", dist.group.WORLD.group_name)  # first
    return y + 1  # second


def a_hook_of_ddp(peer):
    model = DistributedDataParallel(nn.Linear(8, 8).to("openreg"))

    def hook(_, bucket):
        dist.all_reduce(bucket.buffer(), async_op=True)  # first
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, hook)
    model(ones(8)).sum().backward()  # second


def a_hook_of_a_gradient(peer):
    weight = ones(8).requires_grad_()
    works = []

    def hook(parameter):
        works.append(dist.all_reduce(parameter.grad, async_op=True))  # first

    weight.register_post_accumulate_grad_hook(hook)
    (weight * 2).sum().backward()
    weight.grad.norm()  # second


def a_message_of_another_tag(peer):
    x, y, z = ones(), ones(), ones()
    works = [dist.isend(x, peer, tag=1), dist.isend(x, peer, tag=2), dist.irecv(y, peer, tag=1)]
    last = dist.irecv(z, peer, tag=2)  # first
    works[2].wait()
    z.sum()  # second
    return works, last


def what_a_callback_has_made(peer):
    x, made = ones(), queue.Queue()
    future = dist.all_reduce(x, async_op=True).get_future()
    future.then(lambda done: made.put(done.value()[0] * 2))  # first
    made.get(timeout=60) + 1  # second


def a_barrier_of_another_group(peer):
    x = ones()
    work = dist.all_reduce(x, group=_groups[0], async_op=True)  # first
    dist.barrier()
    x.sum()  # second
    return work


_groups = []
WRONG = [
    read_before_wait,
    write_before_wait,
    write_into_an_input,
    write_into_a_part_of_an_input,
    read_of_one_output,
    an_input_of_all_to_all,
    a_broadcast,
    a_receive_buffer,
    a_batch_of_messages,
    a_coalesced_operation,
    a_collective_reads_what_a_stream_writes,
    two_collectives_of_two_groups,
    a_wait_of_another_work,
    a_functional_collective,
    a_hook_of_ddp,
    a_hook_of_a_gradient,
    a_message_of_another_tag,
    a_barrier_of_another_group,
]


def everything_waited_for(peer):
    x, y, out = ones(), ones(), ones(2 * N)
    dist.all_reduce(x)
    x.add_(1)
    work = dist.all_gather_into_tensor(out, x, async_op=True)
    x.sum()  # reads are free
    work.wait()
    x.add_(1)
    out.sum()
    for work in (dist.isend(x, peer), dist.irecv(y, peer)):
        work.wait()
    x.zero_()
    y.zero_()
    dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)])[
        0
    ].wait()
    x.zero_()
    y.zero_()


def futures(peer):
    x = ones()
    future = dist.all_reduce(x, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    doubled.wait()
    x.zero_()


def a_dropped_input(peer):
    x = ones()
    work = dist.all_reduce(x, async_op=True)
    del x
    torch.zeros(N, device="openreg")
    work.wait()


def a_host_that_waits(peer):
    x = ones()
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
    x.zero_()
    dist.all_reduce(x, async_op=True).wait()
    dist.barrier()
    with torch.openreg.stream(torch.openreg.Stream()):
        x.zero_()
        torch.openreg.current_stream().synchronize()


def tensors_that_are_not_contiguous(peer):
    x = ones(2 * N)[::2]
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    x.zero_()


def functional_collectives(peer):
    x = ones()
    y = FUNCTIONAL.wait_tensor(FUNCTIONAL.all_reduce(x, "sum", dist.group.WORLD.group_name))
    x.zero_()
    z = funcol.all_reduce(x, "sum", dist.group.WORLD) + y  # waits when it is used
    x.add_(z)


def hooks_of_ddp(peer):
    model = DistributedDataParallel(nn.Linear(8, 8).to("openreg"))

    def hook(_, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / 2)

    model.register_comm_hook(None, hook)
    model(ones(8)).sum().backward()
    model.module.weight.grad.sum()


def operations_of_one_group_are_in_order(peer):
    x = ones()
    dist.all_reduce(x, async_op=True)
    dist.all_reduce(x[:10], async_op=True).wait()
    x.sum()


RIGHT = [
    everything_waited_for,
    futures,
    a_dropped_input,
    a_host_that_waits,
    tensors_that_are_not_contiguous,
    functional_collectives,
    hooks_of_ddp,
    operations_of_one_group_are_in_order,
]


class SanitizerTest(RankTestCase):
    def begin(self):
        self.init()
        dist.barrier()
        sanitizer.enable()

    def settle(self):
        """What a wrong program has left under way ends, and its tensors go."""
        gc.collect()
        torch.openreg.synchronize()
        dist.barrier()
        sanitizer.clear()

    def check_marks(self, report, lines):
        for operation, mark in ((report.first, "first"), (report.second, "second")):
            if operation is not None:
                self.assertIn(f"# {mark}", lines(operation.place), report.message)
        if report.freed_at is not None and report.kind == "reuse":
            self.assertIn("# freed", lines(report.freed_at), report.message)

    def test_programs_of_the_documentation(self):
        self.begin()
        self.assertGreaterEqual(len(programs()), 10)
        for number, (title, wrong, printed, right) in enumerate(programs(), 1):
            with self.subTest(title):
                logged = io.StringIO()
                for code, name in ((wrong, "prog.py"), (right, "right.py")):
                    self.settle()
                    with (
                        contextlib.suppress(sanitizer.SanitizerError),
                        contextlib.redirect_stdout(logged),
                    ):
                        exec(compile(code, name, "exec"), {"__name__": f"program{number}"})
                    reports = sanitizer.reports()
                    if code is right:
                        self.assertEqual(reports, [], title)
                        continue
                    self.assertEqual(len(reports), 1, title)
                    source = wrong.splitlines()
                    self.check_marks(reports[0], lambda place, s=source: s[place.line - 1])
                    if self.rank == 0:
                        self.assertEqual(
                            without_numbers(reports[0].message), without_numbers(printed)
                        )
        self.settle()

    def test_wrong_programs(self):
        self.begin()
        _groups.append(dist.new_group())
        dist.all_reduce(ones(), group=_groups[0])
        for program in WRONG:
            with self.subTest(program.__name__):
                with self.assertRaises(sanitizer.SanitizerError) as caught:
                    program(1 - self.rank)
                report = caught.exception.report
                self.assertEqual(report.kind, "race")
                self.check_marks(report, lambda place: linecache.getline(place.file, place.line))
                self.assertIn("group", str(report))
            del caught, report
            self.settle()

    def test_a_callback_runs_on_a_stream_of_its_own(self):
        self.begin()
        with self.assertRaises(sanitizer.SanitizerError) as caught:
            what_a_callback_has_made(1 - self.rank)
        self.check_marks(
            caught.exception.report, lambda place: linecache.getline(place.file, place.line)
        )

    def test_right_programs(self):
        self.begin()
        for program in RIGHT:
            program(1 - self.rank)
            gc.collect()
            torch.zeros(N, device="openreg")
            self.assertEqual(sanitizer.reports(), [], program.__name__)

    def test_what_was_never_awaited_is_logged_when_the_group_ends(self):
        self.begin()
        group = dist.new_group()
        x, y = ones(), ones()
        work = dist.all_reduce(x, group=group, async_op=True)
        dist.all_reduce(y, group=group, async_op=True).wait()
        torch.openreg.synchronize()
        dist.destroy_process_group(group)
        (report,) = sanitizer.reports()
        self.assertEqual(report.kind, "never-awaited")
        self.assertEqual((report.first.operator, report.first.sequence), ("all_reduce", 1))
        del work

    def test_what_is_left_in_flight_is_logged_when_the_group_ends(self):
        self.begin()
        group = dist.new_group()
        dist.all_reduce(ones(), group=group)
        torch.openreg.synchronize()
        x = ones()
        work = dist.irecv(x, 1, group=group) if self.rank == 0 else None
        dist.all_reduce(ones(8))
        with unittest.mock.patch.object(sanitizer._LOGGER, "warning") as warning:
            self.backend(group).shutdown()
        kinds = [report.kind for report in sanitizer.reports()]
        self.assertEqual(kinds, ["left-in-flight"] if self.rank == 0 else [])
        self.assertEqual(warning.call_count, len(kinds))
        del work
