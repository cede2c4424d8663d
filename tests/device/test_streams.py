import signal
import threading

import pytest
import torch
import torch_openreg  # noqa: F401
from helpers import DEADLINE_S, gate, run_python
from torch_openreg import _C


@pytest.fixture(autouse=True)
def _clean_streams():
    torch.openreg.set_device(0)
    torch.openreg.set_stream(torch.openreg.default_stream(0))
    yield
    torch.openreg.set_device(0)
    torch.openreg.set_stream(torch.openreg.default_stream(0))
    torch.openreg.synchronize(0)
    torch.openreg.synchronize(1)


def test_query_is_false_while_work_runs():
    stream = torch.openreg.Stream()
    with_gate = gate(stream)
    assert stream.query() is False
    with_gate.open()
    stream.synchronize()
    assert stream.query() is True


def test_streams_do_not_wait_for_each_other():
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    held = gate(first)
    second.synchronize()
    assert second.query() and not first.query()
    held.open()


def test_wait_stream_orders_later_work():
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    held = gate(first)
    second.wait_stream(first)
    assert not second.query()
    held.open()
    second.synchronize()
    assert first.query()


def test_wait_stream_takes_a_plain_torch_stream():
    first, second = torch.Stream("openreg"), torch.openreg.Stream()
    held = gate(first)
    second.wait_stream(first)
    assert not second.query()
    held.open()
    second.synchronize()


def test_wait_stream_of_another_device():
    first, second = torch.openreg.Stream(0), torch.openreg.Stream(1)
    held = gate(first)
    second.wait_stream(first)
    assert not second.query()
    held.open()
    torch.openreg.synchronize(1)
    assert second.query()


def test_synchronize_of_a_device_waits_for_all_its_streams_only():
    here, there = torch.openreg.Stream(0), torch.openreg.Stream(1)
    held = gate(there)
    torch.openreg.synchronize(0)
    assert here.query() and not there.query()
    held.open()
    torch.openreg.synchronize(1)
    assert there.query()


def test_default_and_current():
    default = torch.openreg.default_stream()
    assert torch.openreg.current_stream() == default
    assert default.stream_id == 0
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream) as entered:
        assert entered is None
        assert torch.openreg.current_stream() == stream != default
        assert torch.accelerator.current_stream() == stream
        with torch.openreg.stream(None):
            assert torch.openreg.current_stream() == stream
    assert torch.openreg.current_stream() == default


def test_stream_context_switches_the_device_and_back():
    stream = torch.openreg.Stream(1)
    with torch.openreg.stream(stream):
        assert torch.openreg.current_device() == 1
        assert torch.openreg.current_stream() == stream
        assert torch.openreg.current_stream(0) == torch.openreg.default_stream(0)
    assert torch.openreg.current_device() == 0
    assert torch.openreg.current_stream(1) == torch.openreg.default_stream(1)


def test_a_stream_is_a_context_manager_itself():
    stream = torch.openreg.Stream()
    with stream:
        assert torch.openreg.current_stream() == stream
    assert torch.openreg.current_stream() == torch.openreg.default_stream()


def test_set_stream_stays():
    stream = torch.openreg.Stream(1)
    torch.openreg.set_stream(stream)
    assert torch.openreg.current_device() == 1
    assert torch.openreg.current_stream() == stream
    torch.openreg.set_stream(None)
    assert torch.openreg.current_stream() == stream
    torch.openreg.set_stream(torch.openreg.default_stream(1))


def test_the_current_stream_is_per_thread():
    torch.openreg.set_stream(torch.openreg.Stream())
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.openreg.current_stream()))
    thread.start()
    thread.join(DEADLINE_S)
    assert seen == [torch.openreg.default_stream()]


def test_priorities_are_clamped_as_cudas():
    least, greatest = torch.openreg.Stream.priority_range()
    assert greatest <= -1 < least or greatest < least
    assert torch.openreg.Stream(priority=greatest).priority == greatest
    assert torch.openreg.Stream(priority=-1000).priority == greatest
    assert torch.openreg.Stream(priority=1000).priority == least


def test_streams_of_the_pool_are_distinct_until_it_wraps():
    streams = [torch.openreg.Stream(5) for _ in range(33)]
    assert len({stream.stream_id for stream in streams[:32]}) == 32
    assert streams[32] == streams[0]
    assert len(set(streams)) == 32


def test_hash_and_equality_with_torch_streams():
    stream = torch.openreg.Stream()
    twin = torch.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    assert stream == twin
    assert (stream != twin) is False
    assert stream != 42 and stream is not None and stream != torch.openreg.Stream()
    assert isinstance(stream, torch.Stream)
    assert stream.device == torch.device("openreg:0")
    assert "openreg:0" in repr(stream)


def test_a_stream_id_that_was_made_up_is_an_error():
    kind = torch.openreg.default_stream().device_type
    ghost = torch.openreg.Stream(stream_id=10**6, device_index=0, device_type=kind)
    with pytest.raises(RuntimeError, match="no stream with the id 1000000"):
        ghost.synchronize()


def test_a_stream_of_another_device_is_told_apart():
    stream = torch.openreg.Stream(0)
    wrong = torch.openreg.Stream(
        stream_id=stream.stream_id, device_index=1, device_type=stream.device_type
    )
    with pytest.raises(RuntimeError, match="it is a stream of openreg:0"):
        wrong.query()


def test_external_stream():
    handle = _C._stream_create(1, 0)
    stream = torch.openreg.ExternalStream(handle)
    assert stream.device_index == 1
    assert stream.openreg_stream == handle
    assert torch.openreg.get_stream_from_external(handle, 1) == stream
    held = gate(stream)
    assert not stream.query()
    held.open()
    stream.synchronize()
    with pytest.raises(ValueError, match="openreg:0"):
        torch.openreg.ExternalStream(handle, device=0)
    _C._stream_destroy(handle)
    with pytest.raises(torch.AcceleratorError):
        stream.synchronize()
    with pytest.raises(torch.AcceleratorError):
        _C._stream_destroy(handle)


def test_external_form_of_a_default_stream_is_that_stream():
    default = torch.openreg.default_stream(2)
    assert torch.openreg.ExternalStream(default.openreg_stream) == default


def test_a_failure_on_a_stream_is_raised_by_the_next_synchronize_and_then_gone():
    stream = torch.openreg.Stream()
    held = _C._StreamGate(stream, 0.001)
    with pytest.raises(torch.AcceleratorError, match="nobody opened the gate within 1 ms"):
        stream.synchronize()
    stream.synchronize()
    del held


@pytest.mark.parametrize("reader", ["item", "cpu", "nonzero", "event", "device"])
def test_a_failure_on_a_stream_is_raised_by_whoever_reads_behind_it(reader):
    tensor = torch.ones(3, device="openreg")
    held = _C._StreamGate(torch.openreg.current_stream(), 0.05)
    event = torch.openreg.current_stream().record_event()
    with pytest.raises(torch.AcceleratorError, match="nobody opened the gate within 50 ms"):
        if reader == "item":
            tensor[0].item()
        elif reader == "cpu":
            tensor.cpu()
        elif reader == "nonzero":
            tensor.nonzero()
        elif reader == "event":
            event.synchronize()
        else:
            torch.openreg.synchronize()
    assert tensor.sum().item() == 3  # told once
    torch.openreg.synchronize()
    del held


def test_a_failure_reaches_a_stream_that_waits_with_its_text():
    failed, waiter = torch.openreg.Stream(), torch.openreg.Stream()
    held = _C._StreamGate(failed, 0.001)
    waiter.wait_stream(failed)
    with pytest.raises(torch.AcceleratorError, match="nobody opened the gate within 1 ms"):
        waiter.synchronize()
    torch.openreg.synchronize()  # it was told once
    del held


def test_a_failure_is_told_to_its_own_stream_only():
    failed, other = torch.openreg.Stream(), torch.openreg.Stream()
    held = _C._StreamGate(failed, 0.001)
    with torch.openreg.stream(other):
        assert torch.ones(3, device="openreg").sum().item() == 3
    other.synchronize()
    with pytest.raises(torch.AcceleratorError, match="nobody opened"):
        failed.synchronize()
    del held


def test_waiting_releases_the_interpreter_lock():
    stream = torch.openreg.Stream()
    held = gate(stream)
    # Only another Python thread opens the gate: with the lock held this would never end.
    threading.Thread(target=held.open).start()
    stream.synchronize()
    held = gate(stream)
    threading.Thread(target=held.open).start()
    torch.openreg.synchronize()
    event = stream.record_event()
    held = gate(stream)
    late = stream.record_event()
    threading.Thread(target=held.open).start()
    late.synchronize()
    assert event.query()


def test_an_operator_that_must_wait_releases_the_interpreter_lock():
    tensor = torch.ones(3, device="openreg")
    held = gate()
    threading.Thread(target=held.open).start()
    assert tensor.nonzero().numel() == 3  # its size is not known before the stream is empty


def test_pointwise_operators_are_queued_where_the_stream_stays_busy():
    torch.empty(2, device="meta") + 1  # the first use of that device imports much
    stream = torch.openreg.Stream()
    a, b = torch.arange(6.0, device="openreg"), torch.full((6,), 2.0, device="openreg")
    stream.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(stream):
        held = gate()
        total = a + b  # a kernel without boxing
        product = total.reshape(2, 3).t() * total.reshape(2, 3).t()
        clipped = torch.logaddexp(total, b)  # through the fallback
        doubled = total.double()
        a.fill_(-1)  # what was read before must not see this
        assert not stream.query()
        held.open()
    stream.synchronize()
    expected = torch.arange(6.0) + 2
    assert torch.equal(total.cpu(), expected)
    assert torch.equal(product.cpu(), expected.reshape(2, 3).t() ** 2)
    torch.testing.assert_close(clipped.cpu(), torch.logaddexp(expected, torch.full((6,), 2.0)))
    assert doubled.dtype == torch.float64 and doubled.tolist() == expected.tolist()


def test_batch_norm_in_evaluation_follows_a_busy_stream():
    # Its saved statistics are empty on the CPU, and so unknown before it has run.
    norm = torch.nn.BatchNorm2d(3).eval()
    norm.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    x = torch.arange(24.0).view(2, 3, 2, 2)
    expected = norm(x)
    norm, x = norm.to("openreg"), x.to("openreg")
    stream = torch.openreg.Stream()
    stream.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(stream):
        held = gate()
        threading.Timer(0.2, held.open).start()
        found = norm(x)
    stream.synchronize()
    torch.testing.assert_close(found.cpu(), expected)


def test_a_shape_that_does_not_fit_is_an_error_at_the_call_on_a_busy_stream():
    with torch.openreg.stream(torch.openreg.Stream()):
        held = gate()
        with pytest.raises(RuntimeError, match="size|broadcast"):
            torch.ones(3, device="openreg") + torch.ones(4, device="openreg")
        held.open()


def test_a_stream_is_the_same_key_in_both_of_its_forms():
    stream = torch.openreg.Stream()
    other = torch.Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )
    assert stream == other and hash(stream) == hash(other)
    assert {stream: 1}[other] == 1


@pytest.mark.parametrize(
    "wait",
    [
        lambda tensor: torch.openreg.synchronize(),
        lambda tensor: torch.accelerator.synchronize(),
        lambda tensor: torch.openreg.current_stream().synchronize(),
        lambda tensor: torch.openreg.current_stream().record_event().synchronize(),
        lambda tensor: tensor.item(),
        lambda tensor: tensor.cpu(),
        lambda tensor: tensor.nonzero(),
    ],
    ids=["device", "accelerator", "stream", "event", "item", "cpu", "nonzero"],
)
def test_ctrl_c_ends_a_wait(wait):
    tensor = torch.ones((), device="openreg")
    held = gate()
    main = threading.get_ident()
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        wait(tensor)
    timer.join(DEADLINE_S)
    held.open()


def test_a_wait_for_a_stream_has_a_deadline_that_says_what_runs():
    code = """
        import torch, torch_openreg
        from torch_openreg import _C
        tensor = torch.ones(3, device="openreg")
        gate = _C._StreamGate(torch.openreg.current_stream(), 60.0)
        try:
            tensor.nonzero()
        except RuntimeError as error:
            assert "TORCH_OPENREG_WAIT_TIMEOUT" in str(error) and "gate" in str(error), error
        else:
            raise SystemExit("did not wait")
        gate.open()
        assert tensor.nonzero().numel() == 3
    """
    run_python(code, {"TORCH_OPENREG_WAIT_TIMEOUT": "0.3"})


def test_many_threads_share_a_stream():
    tensor = torch.zeros(1000, device="openreg")
    stream = torch.openreg.current_stream()

    def add():
        with torch.openreg.stream(stream):
            for _ in range(200):
                tensor.add_(1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert torch.equal(tensor.cpu(), torch.full((1000,), 800.0))


def test_main_and_autograd_thread_share_a_stream():
    for _ in range(20):
        weight = torch.ones(64, 64, device="openreg", requires_grad=True)
        loss = (weight @ weight).sum()
        loss.backward()
        assert torch.equal(weight.grad.cpu(), torch.full((64, 64), 128.0))


def test_backward_runs_on_the_forward_stream():
    stream = torch.openreg.Stream()
    weight = torch.ones(8, device="openreg", requires_grad=True)
    torch.openreg.synchronize()
    seen = []
    with torch.openreg.stream(stream):
        out = weight * 2
        out.register_hook(lambda _: seen.append(torch.openreg.current_stream().stream_id))
        out.sum().backward()
    stream.synchronize()
    assert seen == [stream.stream_id]
    assert torch.equal(weight.grad.cpu(), torch.full((8,), 2.0))


@pytest.mark.skipif(
    torch.openreg.sanitizer.is_enabled(), reason="frees what a stream still reads, on purpose"
)
def test_what_queued_work_uses_lives_until_it_has_run():
    stream = torch.openreg.Stream()
    source = torch.full((1 << 16,), 7.0, device="openreg")
    target = torch.zeros(1 << 16, device="openreg")
    torch.openreg.synchronize()
    with torch.openreg.stream(stream):
        held = gate()
        target.copy_(source)  # queued behind the gate
    del source
    overwriting = [torch.zeros(1 << 16, device="openreg") for _ in range(8)]
    held.open()
    stream.synchronize()
    assert torch.equal(target.cpu(), torch.full((1 << 16,), 7.0))
    del overwriting
