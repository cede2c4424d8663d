"""Fork, spawn, data loaders, and the end of a process."""

import pytest
import torch
import torch_openreg  # noqa: F401
from helpers import DEADLINE_S, run_python
from torch.utils.data import DataLoader, Dataset


def test_import_then_fork_is_fine():
    code = """
        import os, torch, torch_openreg
        pid = os.fork()
        if pid == 0:
            ok = torch.ones(3, device="openreg").sum().item() == 3
            os._exit(0 if ok else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert torch.ones(3, device="openreg").sum().item() == 3
    """
    run_python(code)


def test_use_then_fork_is_cudas_error():
    code = """
        import os, sys, torch, torch_openreg
        tensor = torch.ones(3, device="openreg")
        event = torch.openreg.current_stream().record_event()
        pinned = torch.ones(3).pin_memory()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            assert torch.openreg._is_in_bad_fork()
            assert not torch.openreg.is_initialized()
            failed = []
            for use in (
                lambda: torch.ones(3, device="openreg"),
                lambda: torch.openreg.init(),
                lambda: torch.openreg.current_device(),
                lambda: torch.openreg.synchronize(),
                lambda: torch.openreg.Stream(),
                lambda: tensor + 1,
                lambda: tensor.cpu(),
            ):
                try:
                    use()
                except RuntimeError as error:
                    failed.append(str(error))
            assert len(failed) == 7, failed
            assert "Cannot re-initialize openreg in forked subprocess" in failed[0]
            assert "'spawn'" in failed[0]
            torch.manual_seed(3)  # allowed, as with CUDA
            assert torch.openreg.device_count() == 8
            del tensor, event, pinned  # copies of the parent's: nothing to free
            sys.stderr.flush()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert (tensor + 1).tolist() == [2, 2, 2]
    """
    done = run_python(code)
    assert done.stderr == ""


def test_a_forked_child_leaves_its_parents_group_alone():
    code = """
        import os, sys, torch, torch.distributed as dist, torch_openreg
        dist.init_process_group("occl", store=dist.HashStore(), rank=0, world_size=1)
        tensor = torch.arange(4, device="openreg")
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        torch.openreg.synchronize()

        import datetime
        backend = dist.group.WORLD._get_backend(torch.device("openreg"))
        short = datetime.timedelta(seconds=1)

        def use():
            for call in (
                lambda: dist.all_reduce(tensor),
                lambda: backend.monitored_barrier(short),
                lambda: work.wait(short),
                work.wait,
            ):
                try:
                    call()
                except RuntimeError as error:
                    assert "Cannot re-initialize openreg in forked subprocess" in str(error), error
                else:
                    raise AssertionError("a collective ran in a forked child")

        def look():
            backend._set_default_timeout(short)
            assert str(backend.get_error()) != "ErrorType.SUCCESS", backend.get_error()

        ends = [use, look, dist.destroy_process_group, dist.distributed_c10d._abort_process_group]
        for end in [*ends, lambda: None]:
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                end()
                sys.exit(5)  # with all that the interpreter does at its exit
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5, end
            dist.all_reduce(tensor)
        assert tensor.tolist() == [0, 1, 2, 3]
        dist.destroy_process_group()
    """
    run_python(code)


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor([index, index * index], dtype=torch.float32)


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("pin", [False, True])
def test_data_loader_workers(start, pin):
    torch.ones(1, device="openreg")  # the device is in use
    loader = DataLoader(
        Squares(),
        batch_size=8,
        num_workers=2,
        pin_memory=pin,
        multiprocessing_context=start,
        timeout=DEADLINE_S,
    )
    total = torch.zeros(2, device="openreg")
    for batch in loader:
        assert batch.is_pinned() is pin
        total += batch.to("openreg", non_blocking=pin).sum(0)
    assert total.tolist() == [sum(range(64)), sum(index * index for index in range(64))]


@pytest.mark.parametrize("leftover", ["gate", "copy", "nothing"])
def test_the_interpreter_exits_cleanly_with_work_in_flight(leftover):
    code = f"""
        import torch, torch_openreg
        from torch_openreg import _C
        stream = torch.openreg.Stream()
        tensor = torch.ones(1 << 20, device="openreg")
        stream.wait_stream(torch.openreg.current_stream())
        keep = []
        with torch.openreg.stream(stream):
            if {leftover!r} != "nothing":
                gate = _C._StreamGate(stream, 0.5)
                tensor.copy_(torch.zeros(1 << 20, device="openreg"))
                event = stream.record_event()
            if {leftover!r} == "copy":
                pinned = torch.ones(1 << 20).pin_memory()
                tensor.copy_(pinned, non_blocking=True)
                keep.append(gate)
        print("end", flush=True)
    """
    done = run_python(code)
    assert done.stdout == "end\n"
    assert done.stderr == ""


def test_exit_while_a_thread_waits_for_a_device():
    code = """
        import threading, torch, torch_openreg
        from torch_openreg import _C
        gate = _C._StreamGate(torch.openreg.current_stream(), 60.0)
        stream = torch.openreg.current_stream()
        def wait():
            try:
                stream.synchronize()
            except RuntimeError:
                pass
        threading.Thread(target=wait, daemon=True).start()
    """
    run_python(code)


def test_exit_while_threads_come_back_from_waits():
    # Daemon threads are between a wait and the interpreter whenever it begins to end.
    code = """
        import threading, time, torch, torch_openreg
        from torch_openreg import _C
        def work(index):
            stream = torch.openreg.Stream()
            event = torch.openreg.Event()
            while True:
                gate = _C._StreamGate(stream, 60.0)
                event.record(stream)
                threading.Thread(target=gate.open, daemon=True).start()
                (stream.synchronize, event.synchronize, torch.openreg.synchronize)[index % 3]()
        for index in range(6):
            threading.Thread(target=work, args=(index,), daemon=True).start()
        time.sleep(0.2)
    """
    for _ in range(2):
        done = run_python(code)
        assert "terminate" not in done.stderr, done.stderr


def test_ten_thousand_allocations_leave_the_process_where_it_was():
    code = """
        import torch, torch_openreg
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096
        def work(count):
            for index in range(count):
                torch.empty(1 + index % 5000, device="openreg")
        work(1000)
        before, maps = resident(), len(open("/proc/self/maps").readlines())
        work(10_000)
        assert resident() - before < 8 << 20, resident() - before
        assert len(open("/proc/self/maps").readlines()) <= maps + 4
        assert torch.openreg.memory_allocated() == 0
    """
    run_python(code)
