"""torch.multiprocessing: openreg tensors in other processes, without a copy."""

import gc
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing as mp
import torch_openreg  # noqa: F401
from helpers import DEADLINE_S, gate

SPAWN = mp.get_context("spawn")


@pytest.fixture
def child():
    """Starts a process with two queues: (start, to_child, from_child)."""
    started = []

    def start(target, *args):
        to_child, from_child = SPAWN.Queue(), SPAWN.Queue()
        process = SPAWN.Process(target=target, args=(to_child, from_child, *args))
        process.start()
        started.append(process)
        return process, to_child, from_child

    yield start
    for process in started:
        process.join(DEADLINE_S)
        if process.is_alive():
            process.kill()
        assert process.exitcode == 0


def _double(inbox, outbox):
    tensor = inbox.get(timeout=DEADLINE_S)
    outbox.put((tensor.tolist(), str(tensor.device)))
    tensor.mul_(2)
    torch.openreg.synchronize(tensor.device)
    outbox.put("doubled")
    inbox.get(timeout=DEADLINE_S)  # keeps the tensor until the owner has looked


def test_writes_are_seen_by_the_owner(child):
    _, to_child, from_child = child(_double)
    tensor = torch.arange(6.0, device="openreg:1")
    to_child.put(tensor)
    assert from_child.get(timeout=DEADLINE_S) == ([0, 1, 2, 3, 4, 5], "openreg:1")
    assert from_child.get(timeout=DEADLINE_S) == "doubled"
    assert tensor.tolist() == [0, 2, 4, 6, 8, 10]
    to_child.put("done")


def _sum_when_told(inbox, outbox):
    tensor = inbox.get(timeout=DEADLINE_S)
    outbox.put("received")
    inbox.get(timeout=DEADLINE_S)
    outbox.put(tensor.sum().item())


def test_the_owner_keeps_the_block_for_the_receiver(child):
    _, to_child, from_child = child(_sum_when_told)
    size = 1 << 18
    tensor = torch.ones(size, device="openreg")
    to_child.put(tensor)
    assert from_child.get(timeout=DEADLINE_S) == "received"
    address = tensor.data_ptr()
    del tensor
    gc.collect()
    others = [torch.zeros(size, device="openreg") for _ in range(4)]
    assert address not in [other.data_ptr() for other in others]
    to_child.put("look")
    assert from_child.get(timeout=DEADLINE_S) == size


def _sum_all(inbox, outbox):
    inbox.get(timeout=DEADLINE_S)
    outbox.put([inbox.get(timeout=DEADLINE_S).sum().item() for _ in range(8)])


def test_the_owner_keeps_the_block_while_the_message_is_on_its_way(child):
    _, to_child, from_child = child(_sum_all)
    to_child.put("begin")
    for value in range(8):
        to_child.put(torch.full((1000,), float(value), device="openreg"))
    # Each tensor is gone here by now or soon; new ones must not take their blocks.
    noise = [torch.full((1000,), -1.0, device="openreg") for _ in range(16)]
    assert from_child.get(timeout=DEADLINE_S) == [1000.0 * value for value in range(8)]
    del noise


def _check_views(inbox, outbox):
    base, view, again = inbox.get(timeout=DEADLINE_S)
    view.fill_(5)
    outbox.put((base.tolist(), again.tolist(), view.storage_offset()))
    del base, view, again
    inbox.get(timeout=DEADLINE_S)


def test_views_of_one_storage_go_on_sharing_it(child):
    _, to_child, from_child = child(_check_views)
    base = torch.zeros(2, 3, device="openreg")
    to_child.put((base, base[1], base))
    expected = [[0, 0, 0], [5, 5, 5]]
    assert from_child.get(timeout=DEADLINE_S) == (expected, expected, 3)
    assert base.tolist() == expected
    to_child.put("done")


def _own_and_send(inbox, outbox):
    outbox.put(torch.full((10,), 3.0, device="openreg"))
    inbox.get(timeout=DEADLINE_S)


def test_a_dead_owners_memory_stays_readable(child):
    process, to_child, from_child = child(_own_and_send)
    tensor = from_child.get(timeout=DEADLINE_S)
    to_child.put("end")
    process.join(DEADLINE_S)
    assert tensor.tolist() == [3.0] * 10


def test_what_was_received_cannot_be_sent_on(child):
    _, to_child, from_child = child(_own_and_send)
    tensor = from_child.get(timeout=DEADLINE_S)
    with pytest.raises(RuntimeError, match="only its owner can share it"):
        ForkingPickler.dumps(tensor)
    clone = tensor.clone()
    to_child.put("end")
    assert clone.tolist() == [3.0] * 10


def _read_when_told(inbox, outbox):
    tensor = inbox.get(timeout=DEADLINE_S)
    outbox.put(torch.openreg.current_stream().query())
    inbox.get(timeout=DEADLINE_S)  # the owner has opened the gate
    outbox.put(tensor.tolist())


@pytest.mark.parametrize("side_stream", [False, True])
def test_sending_does_not_wait_but_the_receivers_stream_does(child, side_stream):
    _, to_child, from_child = child(_read_when_told)
    tensor = torch.zeros(4, device="openreg")
    stream = torch.openreg.Stream() if side_stream else torch.openreg.current_stream()
    torch.openreg.synchronize()
    with torch.openreg.stream(stream):
        held = gate()
        tensor.fill_(7)  # queued behind the gate
    to_child.put(tensor)
    assert from_child.get(timeout=DEADLINE_S) is False
    held.open()
    to_child.put("opened")
    assert from_child.get(timeout=DEADLINE_S) == [7, 7, 7, 7]
    stream.synchronize()  # the tensor goes, and its memory is the current stream's


def _sum_and_wait(inbox, outbox, tensor):
    outbox.put(tensor.sum().item())
    inbox.get(timeout=DEADLINE_S)


def test_many_importers_of_one_storage(child):
    tensor = torch.arange(1000.0, device="openreg")
    children = [child(_sum_and_wait, tensor) for _ in range(3)]
    for _, _, from_child in children:
        assert from_child.get(timeout=DEADLINE_S) == 499500
    address = tensor.data_ptr()
    del tensor
    gc.collect()
    for index, (process, to_child, _) in enumerate(children):
        # Kept until the last one has ended.
        others = [torch.empty(1000, device="openreg") for _ in range(4)]
        assert address not in [other.data_ptr() for other in others], index
        to_child.put("end")
        process.join(DEADLINE_S)


def _record_event(inbox, outbox, handle):
    event = torch.openreg.Event.from_ipc_handle(0, handle)
    held = gate()
    event.record()
    outbox.put("recorded")
    inbox.get(timeout=DEADLINE_S)
    held.open()
    torch.openreg.synchronize()
    outbox.put("opened")
    inbox.get(timeout=DEADLINE_S)


def test_an_event_is_recorded_by_the_other_process(child):
    event = torch.openreg.Event(interprocess=True)
    _, to_child, from_child = child(_record_event, event.ipc_handle())
    assert from_child.get(timeout=DEADLINE_S) == "recorded"
    assert not event.query()
    stream = torch.openreg.Stream()
    stream.wait_event(event)
    assert not stream.query()
    to_child.put("open")
    assert from_child.get(timeout=DEADLINE_S) == "opened"
    event.synchronize()
    stream.synchronize()
    assert event.query()
    to_child.put("end")


def _grad_and_parameter(inbox, outbox, parameter):
    outbox.put((parameter.requires_grad, parameter.is_leaf, type(parameter).__name__))
    with torch.no_grad():
        parameter.add_(1)
    torch.openreg.synchronize()
    outbox.put("added")
    inbox.get(timeout=DEADLINE_S)


def test_parameters_as_arguments_of_a_process(child):
    parameter = torch.nn.Parameter(torch.zeros(4, device="openreg"))
    _, to_child, from_child = child(_grad_and_parameter, parameter)
    assert from_child.get(timeout=DEADLINE_S) == (True, True, "Parameter")
    assert from_child.get(timeout=DEADLINE_S) == "added"
    assert parameter.tolist() == [1, 1, 1, 1]
    to_child.put("done")


def _empty(inbox, outbox):
    tensor = inbox.get(timeout=DEADLINE_S)
    outbox.put((tuple(tensor.shape), str(tensor.device)))


def test_an_empty_tensor(child):
    _, to_child, from_child = child(_empty)
    to_child.put(torch.empty(0, 4, device="openreg:2"))
    assert from_child.get(timeout=DEADLINE_S) == ((0, 4), "openreg:2")


def test_share_memory_is_a_no_op():
    tensor = torch.ones(3, device="openreg")
    assert tensor.share_memory_() is tensor
    assert tensor.is_shared()


def test_ipc_collect_frees_what_nobody_uses(child):
    _, to_child, from_child = child(_sum_when_told)
    before = torch.openreg.memory_allocated()
    tensor = torch.ones(1 << 18, device="openreg")
    to_child.put(tensor)
    assert from_child.get(timeout=DEADLINE_S) == "received"
    to_child.put("look")
    assert from_child.get(timeout=DEADLINE_S) == 1 << 18
    del tensor
    gc.collect()
    torch.openreg.ipc_collect()
    assert torch.openreg.memory_allocated() <= before
