import pytest
import torch
import torch.multiprocessing as mp
import torch_openreg  # noqa: F401
from helpers import DEADLINE_S, gate


def test_an_event_that_was_never_recorded_is_complete():
    event = torch.openreg.Event()
    assert event.query()
    event.synchronize()
    event.wait()
    assert "uninitialized" in repr(event)


def test_query_follows_the_recorded_work():
    stream = torch.openreg.Stream()
    held = gate(stream)
    event = stream.record_event()
    assert isinstance(event, torch.openreg.Event)
    assert not event.query()
    held.open()
    event.synchronize()
    assert event.query()


def test_an_event_captures_only_what_was_queued_before():
    stream = torch.openreg.Stream()
    event = stream.record_event()
    held = gate(stream)
    event.synchronize()
    assert event.query() and not stream.query()
    held.open()


def test_a_waiter_waits_for_what_was_captured_when_it_began():
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    event = first.record_event()
    second.wait_event(event)
    held = gate(first)
    event.record(first)  # a later capture
    second.synchronize()
    assert second.query() and not event.query()
    held.open()


def test_wait_without_a_stream_is_on_the_current_one():
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    held = gate(first)
    event = first.record_event()
    with torch.openreg.stream(second):
        event.wait()
    assert not second.query()
    held.open()
    second.synchronize()


def test_record_without_a_stream_is_on_the_current_one():
    stream = torch.openreg.Stream()
    held = gate(stream)
    event = torch.openreg.Event()
    with torch.openreg.stream(stream):
        event.record()
    assert not event.query()
    held.open()
    event.synchronize()


def test_elapsed_time_is_the_time_between_two_records():
    start, end = torch.openreg.Event(enable_timing=True), torch.openreg.Event(enable_timing=True)
    stream = torch.openreg.Stream()
    start.record(stream)
    held = gate(stream)
    end.record(stream)
    with pytest.raises(RuntimeError, match="completed"):
        start.elapsed_time(end)
    held.open()
    end.synchronize()
    elapsed = start.elapsed_time(end)
    assert elapsed > 0
    assert end.elapsed_time(start) == pytest.approx(-elapsed)


def test_elapsed_time_needs_timing_and_records():
    timed, plain = torch.openreg.Event(enable_timing=True), torch.openreg.Event()
    with pytest.raises(ValueError, match="recorded"):
        timed.elapsed_time(torch.openreg.Event(enable_timing=True))
    timed.record()
    plain.record()
    with pytest.raises(ValueError, match="enable_timing"):
        timed.elapsed_time(plain)


def test_an_event_belongs_to_the_device_of_its_first_record():
    event = torch.openreg.Event()
    event.record(torch.openreg.Stream(0))
    with pytest.raises(RuntimeError, match="device index"):
        event.record(torch.openreg.Stream(1))


def test_elapsed_time_is_between_events_of_one_device():
    events = [torch.openreg.Event(enable_timing=True) for _ in range(2)]
    for index, event in enumerate(events):
        event.record(torch.openreg.Stream(index))
        torch.openreg.synchronize(index)
    with pytest.raises(torch.AcceleratorError, match="one of device 0 and one of device 1"):
        events[0].elapsed_time(events[1])


def test_a_blocking_event():
    stream = torch.openreg.Stream()
    event = torch.openreg.Event(blocking=True)
    assert event.query()
    held = gate(stream)
    event.record(stream)
    assert not event.query()
    held.open()
    event.synchronize()
    timed = torch.openreg.Event(enable_timing=True, blocking=True)
    timed.record(stream)
    timed.synchronize()
    assert timed.elapsed_time(timed) == 0


def test_torch_event_works_with_openreg_streams():
    stream = torch.openreg.Stream()
    event = torch.Event("openreg")
    held = gate(stream)
    event.record(stream)
    torch.openreg.current_stream().wait_event(event)
    assert not event.query() and not torch.openreg.current_stream().query()
    held.open()
    event.synchronize()
    torch.openreg.synchronize()


def test_an_interprocess_event_takes_no_time():
    with pytest.raises(torch.AcceleratorError):
        torch.openreg.Event(enable_timing=True, interprocess=True)


def test_an_ordinary_event_has_no_ipc_handle():
    with pytest.raises((ValueError, torch.AcceleratorError)):
        torch.openreg.Event().ipc_handle()
    event = torch.openreg.Event()
    event.record()
    with pytest.raises((ValueError, torch.AcceleratorError)):
        event.ipc_handle()


def test_bytes_that_are_no_handle_are_refused():
    with pytest.raises(ValueError, match="bytes"):
        torch.openreg.Event.from_ipc_handle(0, b"short")
    with pytest.raises(torch.AcceleratorError):
        torch.openreg.Event.from_ipc_handle(0, b"\xff" * 64)


def _wait_for_event(event, questions, answers):
    if isinstance(event, bytes):
        event = torch.openreg.Event.from_ipc_handle(0, event)
    answers.put(event.query())
    questions.get(timeout=DEADLINE_S)  # the owner has opened the gate
    event.synchronize()
    answers.put(event.query())


@pytest.mark.parametrize("sent_as", ["event", "handle"])
def test_another_process_waits_for_an_interprocess_event(sent_as):
    context = mp.get_context("spawn")
    questions, answers = context.Queue(), context.Queue()
    stream = torch.openreg.Stream()
    event = torch.openreg.Event(interprocess=True)
    held = gate(stream)
    event.record(stream)
    sent = event if sent_as == "event" else event.ipc_handle()
    child = context.Process(target=_wait_for_event, args=(sent, questions, answers))
    child.start()
    assert answers.get(timeout=DEADLINE_S) is False
    held.open()
    questions.put("opened")
    assert answers.get(timeout=DEADLINE_S) is True
    child.join(DEADLINE_S)
    assert child.exitcode == 0
