"""Operators on a stream that is busy: queued where their results exist, and still right."""

import importlib
import subprocess
import sys
import threading

import pytest
import torch
import torch_openreg  # noqa: F401
from torch_openreg import _C

DEVICE = "openreg"
DEADLINE_S = 60.0


@pytest.fixture
def busy():
    """The current stream, busy until the test opens its gate."""
    stream = torch.openreg.Stream()
    torch.ones(1, device=DEVICE).add_(1)  # the device is alive
    with torch.openreg.stream(stream):
        gate = _C._StreamGate(stream, DEADLINE_S)
        yield gate
        gate.open()
        stream.synchronize()


def made_before(*tensors):
    return [tensor.to(DEVICE) for tensor in tensors]


CALLS = {
    "in place": lambda a, b: a.add_(b, alpha=2),
    "a scalar": lambda a, b: a.mul_(3),
    "a host scalar": lambda a, b: a.add_(torch.tensor(2.0)),
    "fill": lambda a, b: a.fill_(7),
    "zero": lambda a, b: a.zero_(),
    "copy": lambda a, b: a.copy_(b),
    "a cast": lambda a, b: a.copy_(b.to(torch.int64) if b.device.type == "cpu" else b),
    "out": lambda a, b: torch.mul(a, b, out=a),
    "foreach": lambda a, b: torch._foreach_add_([a, b], 1),
    "foreach copy": lambda a, b: torch._foreach_copy_([a], [b]),
    "masked": lambda a, b: (
        a.masked_fill_(torch.ones_like(b, dtype=torch.bool), 5)
        if b.device.type == "cpu"
        else a.fill_(5)
    ),
    "addcdiv": lambda a, b: a.addcdiv_(b, b, value=-1),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_queued_and_gives_the_cpus_numbers(name):
    call = CALLS[name]
    hosts = [torch.arange(4.0) + 1, torch.arange(4.0) + 2]
    devices = made_before(*hosts)
    call(*hosts)
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        gate = _C._StreamGate(stream, DEADLINE_S)
        call(*devices)
        assert not stream.query()
        gate.open()
        stream.synchronize()
    for host, device in zip(hosts, devices, strict=True):
        assert torch.equal(device.cpu(), host)


IMPORTS_NOTHING = """
import sys
import torch
from torch_openreg import _C

stream = torch.openreg.Stream()
a = torch.arange(6.0, device="openreg").view(2, 3)
b = torch.ones(3, device="openreg")
with torch.openreg.stream(stream):
    gate = _C._StreamGate(stream, 60.0)
    results = [a > b, a + b, a * 2, torch.where(a > 2, a, b), a.clamp(1, 3), a**2, a.add_(1)]
    results += [torch.add(a, b, out=torch.empty(2, 3, device="openreg"))]
    assert not stream.query()
    gate.open()
    stream.synchronize()
assert results[0].tolist() == [[False, False, True], [True, True, True]], results[0]
assert results[-1].tolist() == [[2, 3, 4], [5, 6, 7]], results[-1]
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""


def test_small_pointwise_operators_import_nothing():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_NOTHING], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


SHAPES = [((), ()), ((0,), (1,)), ((3,), ()), ((2, 1), (3, 2)), ((5, 1, 0), (1, 1, 5))]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtypes", [("float32", "int64"), ("bool", "bfloat16"), ("uint8", "int8")])
def test_made_results_are_as_the_cpus(busy, shapes, dtypes):
    shape, other_shape = shapes
    first, second = (getattr(torch, dtype) for dtype in dtypes)
    a, b = torch.ones(shape, dtype=first), torch.ones(other_shape, dtype=second).mul_(2)
    with torch.openreg.stream(torch.openreg.default_stream()):
        da, db = made_before(a, b)
    if b.dim() > 1:
        b, db = b.mT, db.mT
    operators = (torch.add, torch.gt, torch.true_divide, torch.maximum, torch.copysign)
    made = [(operator(a, b), operator, operator(da, db)) for operator in operators]
    busy.open()
    torch.openreg.current_stream().synchronize()
    for expected, operator, found in made:
        assert found.dtype == expected.dtype, operator
        assert found.stride() == expected.stride(), operator
        assert torch.equal(found.cpu(), expected), operator


def test_an_error_of_the_shapes_is_raised_at_once(busy):
    with torch.openreg.stream(torch.openreg.default_stream()):
        a, b = made_before(torch.ones(2), torch.ones(3))
    with pytest.raises(RuntimeError, match=r"size of tensor a \(2\) must match .* b \(3\)"):
        a + b


def test_the_order_of_the_queue_is_kept(busy):
    with torch.openreg.stream(torch.openreg.default_stream()):
        tensor = torch.zeros(4, device=DEVICE)
    tensor.add_(1)
    tensor.mul_(5)
    tensor.sub_(2)
    busy.open()
    torch.openreg.current_stream().synchronize()
    assert tensor.tolist() == [3] * 4


def test_tensors_live_until_the_work_is_done(busy):
    with torch.openreg.stream(torch.openreg.default_stream()):
        tensor = torch.zeros(1 << 16, device=DEVICE)
        other = torch.ones(1 << 16, device=DEVICE)
    tensor.add_(other)
    del other
    with torch.openreg.stream(torch.openreg.default_stream()):
        thief = torch.full((1 << 16,), 9.0, device=DEVICE)
    busy.open()
    torch.openreg.current_stream().synchronize()
    assert tensor.sum().item() == 1 << 16 and thief[0].item() == 9


@pytest.mark.parametrize(
    "copy", [torch.Tensor.copy_, lambda to, by: torch._foreach_copy_([to], [by])]
)
@pytest.mark.parametrize("count", [7, (5 << 20) + 3])
def test_a_copy_has_its_place_in_the_queue_and_keeps_its_source(busy, copy, count):
    numbers = torch.arange(count, dtype=torch.int32)
    with torch.openreg.stream(torch.openreg.default_stream()):
        source, target = numbers.to(DEVICE), torch.zeros(count, dtype=torch.int32, device=DEVICE)
    source.add_(5)
    copy(target, source)
    source.zero_()
    del source
    with torch.openreg.stream(torch.openreg.default_stream()):
        thief = torch.full((count,), -1, dtype=torch.int32, device=DEVICE)
    target.mul_(2)
    busy.open()
    torch.openreg.current_stream().synchronize()
    assert torch.equal(target.cpu(), 2 * (numbers + 5)) and thief.eq(-1).all().item()


def other_data(tensor):
    tensor.data = torch.full((8,), 9.0, device=DEVICE)


def other_storage(tensor):
    tensor.set_(torch.full((2, 3), 9.0, device=DEVICE))


AFTERWARDS = {
    "other data": other_data,
    "another storage": other_storage,
    "another shape": lambda tensor: tensor.t_(),
    "no sizes": lambda tensor: tensor.resize_(0),
}

QUEUED = {
    "add": lambda to, by: to.add_(by),
    "foreach add": lambda to, by: torch._foreach_add_([to], [by]),
    "copy": lambda to, by: to.copy_(by),
    "foreach copy": lambda to, by: torch._foreach_copy_([to], [by]),
    "copy from pinned memory": lambda to, by: to.copy_(
        torch.arange(6.0).view(2, 3).pin_memory(), non_blocking=True
    ),
}


@pytest.mark.parametrize("name", QUEUED)
@pytest.mark.parametrize("afterwards", AFTERWARDS)
def test_what_becomes_of_a_tensor_later_does_not_matter(busy, name, afterwards):
    """FSDP gives its flat parameter other data between two operations on it."""
    host, by_host = torch.ones(2, 3), torch.arange(6.0).view(2, 3)
    with torch.openreg.stream(torch.openreg.default_stream()):
        tensor, by = made_before(host, by_host)
        kept = tensor.view(2, 3)
    QUEUED[name](host, by_host)
    QUEUED[name](tensor, by)
    with torch.openreg.stream(torch.openreg.default_stream()):
        AFTERWARDS[afterwards](tensor)
        AFTERWARDS[afterwards](by)
    busy.open()
    torch.openreg.current_stream().synchronize()
    assert torch.equal(kept.cpu(), host)


def test_a_storage_that_is_freed_after_its_use_was_queued(busy):
    """As FSDP frees what it has gathered: on the stream's order, not on the host's."""
    with torch.openreg.stream(torch.openreg.default_stream()):
        tensor, by = torch.zeros(1024, device=DEVICE), torch.arange(1024.0, device=DEVICE)
    tensor.add_(by)
    by.untyped_storage().resize_(0)
    busy.open()
    torch.openreg.current_stream().synchronize()
    assert torch.equal(tensor.cpu(), torch.arange(1024.0))


def test_a_wrong_shape_is_an_error_at_the_call(busy):
    with torch.openreg.stream(torch.openreg.default_stream()):
        tensor, other = torch.zeros(4, device=DEVICE), torch.zeros(5, device=DEVICE)
    with pytest.raises(RuntimeError, match="broadcast|size"):
        tensor.add_(other)
    with pytest.raises(RuntimeError, match="must match the existing size"):
        tensor.copy_(other)


def test_host_memory_may_change_after_the_call(busy):
    with torch.openreg.stream(torch.openreg.default_stream()):
        tensor = torch.zeros(4, device=DEVICE)
    host = torch.ones(4)
    tensor.copy_(host, non_blocking=True)
    scalar = torch.tensor(2.0)
    tensor.add_(scalar)
    host.fill_(100)
    scalar.fill_(100)
    busy.open()
    torch.openreg.current_stream().synchronize()
    assert tensor.tolist() == [3] * 4


@pytest.mark.parametrize("pinned", [False, True])
def test_a_blocking_copy_to_the_device_is_complete_when_it_returns(busy, pinned):
    """As on CUDA: what it made may be used on every stream without a wait."""
    threading.Timer(0.2, busy.open).start()
    host = torch.arange(6.0)
    made = (host.pin_memory() if pinned else host).to(DEVICE)
    assert torch.openreg.current_stream().query()
    with torch.openreg.stream(torch.openreg.Stream()):
        assert made.mul(2).tolist() == [0, 2, 4, 6, 8, 10]


def test_a_pinned_copy_to_the_host_does_not_wait(busy):
    with torch.openreg.stream(torch.openreg.default_stream()):
        tensor = torch.ones(4, device=DEVICE)
    host = torch.zeros(4).pin_memory()
    host.copy_(tensor, non_blocking=True)
    assert host.tolist() == [0] * 4
    busy.open()
    torch.openreg.current_stream().synchronize()
    assert host.tolist() == [1] * 4


def test_a_copy_between_devices_follows_both_streams(busy):
    with torch.openreg.stream(torch.openreg.default_stream()):
        source = torch.zeros(4, device="openreg:0")
        target = torch.zeros(4, device="openreg:1")
    source.add_(1)
    target.copy_(source)
    busy.open()
    torch.openreg.synchronize("openreg:1")
    assert target.tolist() == [1] * 4


def test_what_it_would_be_on_the_device_only_fails_at_the_synchronise(busy):
    with torch.openreg.stream(torch.openreg.default_stream()):
        tensor = torch.zeros(4, device=DEVICE)
        index = torch.tensor([9], device=DEVICE)
        values = torch.ones(1, device=DEVICE)
    tensor.index_add_(0, index, values)
    busy.open()
    with pytest.raises(RuntimeError, match="index"):
        torch.openreg.current_stream().synchronize()


# Operators whose meta kernels in Python want all tensors on one device.
HOST_SCALARS = {
    "div floor": lambda host, a: torch.div(host, a, rounding_mode="floor"),
    "div trunc": lambda host, a: torch.div(host, a, rounding_mode="trunc"),
    "div by the host's": lambda host, a: torch.div(a, host, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
    "copysign": torch.copysign,
    "copysign of a number": lambda host, a: torch.copysign(a, -3.5),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "where": lambda host, a: torch.where(a > 0, host, a),
    "pow": lambda host, a: host.abs() ** a,
    "atan2": torch.atan2,
    "lerp": lambda host, a: torch.lerp(a, a * a, host),
    "clamp": lambda host, a: torch.clamp(a, min=host),
    "in place": lambda host, a: a.clone().div_(host, rounding_mode="trunc"),
    "out": lambda host, a: torch.div(host, a, rounding_mode="floor", out=torch.empty_like(a)),
    "a number of its kind": lambda host, a: torch.div(7, a, rounding_mode="floor"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
@pytest.mark.parametrize("name", HOST_SCALARS)
def test_scalars_of_the_host_meet_meta_kernels_written_in_python(name, dtype):
    importlib.import_module("torch._meta_registrations")  # as every `import torch._dynamo` does
    call = HOST_SCALARS[name]
    host, numbers = torch.tensor(-7, dtype=dtype), torch.tensor([2.0, -3, 4, 5])
    expected = call(host, numbers)
    tensor = numbers.to(DEVICE)
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        gate = _C._StreamGate(stream, DEADLINE_S)
        threading.Timer(0.2, gate.open).start()  # some have to wait for the stream
        found = call(host, tensor)
        stream.synchronize()
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found.cpu(), expected, equal_nan=True)
