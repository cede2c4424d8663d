"""Copies between the host and the device, within a device and between two."""

import pytest
import torch
import torch_openreg  # noqa: F401

DEVICE = "openreg"
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64]


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_a_cast_on_the_way_is_the_cpus(source, target):
    host = torch.tensor([0.0, 1.0, 3.0]).to(source)
    wanted = host.to(target)
    assert torch.equal(host.to(DEVICE).to(target).cpu(), wanted)
    to_device = torch.empty(3, dtype=target, device=DEVICE).copy_(host)
    assert torch.equal(to_device.cpu(), wanted)
    assert torch.equal(torch.empty(3, dtype=target).copy_(host.to(DEVICE)), wanted)


@pytest.mark.parametrize("non_blocking", [False, True])
def test_strides_and_broadcasting(non_blocking):
    host = torch.arange(12.0).view(3, 4)
    device = torch.empty(4, 3, device=DEVICE).t()
    device.copy_(host, non_blocking)
    assert torch.equal(device.cpu(), host) and device.stride() == (1, 3)
    device.copy_(torch.arange(4.0), non_blocking)
    assert torch.equal(device.cpu(), torch.arange(4.0).expand(3, 4))
    back = torch.zeros(4, 3).t()
    back.copy_(device, non_blocking)
    torch.openreg.synchronize()
    assert torch.equal(back, device.cpu())


def test_between_devices():
    there = torch.arange(5.0).to("openreg:0").to("openreg:1")
    assert there.device == torch.device("openreg:1") and there.tolist() == [0, 1, 2, 3, 4]
    assert torch.empty(5, device="openreg:0").copy_(there).tolist() == [0, 1, 2, 3, 4]


def test_pinned_memory_both_ways():
    host = torch.arange(1000.0).pin_memory()
    assert host.is_pinned()
    device = host.to(DEVICE, non_blocking=True)
    back = device.to("cpu", non_blocking=True)
    torch.openreg.synchronize()
    assert torch.equal(back, host)


def test_foreach_copy_between_host_and_device():
    hosts = [torch.arange(3.0), torch.arange(4.0)]
    devices = [torch.zeros(3, device=DEVICE), torch.zeros(4, device=DEVICE)]
    torch._foreach_copy_(devices, hosts)
    copies = [torch.zeros_like(t) for t in devices]
    torch._foreach_copy_(copies, devices)
    backs = [torch.zeros(3), torch.zeros(4)]
    torch._foreach_copy_(backs, copies)
    assert all(torch.equal(a, b) for a, b in zip(backs, hosts, strict=True))


def test_a_wrong_shape_is_an_error_that_says_so():
    with pytest.raises(RuntimeError, match="must match the existing size"):
        torch.zeros(3, device=DEVICE).copy_(torch.zeros(4))


def test_split_with_sizes_copy_and_chunk_cat():
    host = torch.arange(12.0).view(2, 6)
    outs = [torch.zeros(2, 2, device=DEVICE), torch.zeros(2, 4, device=DEVICE)]
    torch.split_with_sizes_copy(host.to(DEVICE), [2, 4], 1, out=outs)
    assert torch.equal(torch.cat(outs, 1).cpu(), host)
    parts = [torch.arange(5.0), torch.arange(6.0).view(3, 2)]
    wanted = torch._chunk_cat(parts, 0, 2)
    out = torch.empty_like(wanted, device=DEVICE)
    torch._chunk_cat([part.to(DEVICE) for part in parts], 0, 2, out=out)
    assert torch.equal(out.cpu(), wanted)


def test_a_storage_can_be_emptied_and_filled_again():
    tensor = torch.arange(4.0, device=DEVICE)
    tensor.untyped_storage().resize_(0)
    assert tensor.untyped_storage().nbytes() == 0
    tensor.untyped_storage().resize_(16)
    tensor.copy_(torch.arange(4.0))
    assert tensor.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64),
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    ],
)
def test_one_element_for_the_host(dtype):
    host = torch.tensor([1, 0, 3]).to(dtype)
    device = host.to(DEVICE)
    for index in range(3):
        found, wanted = device[index].item(), host[index].item()
        assert found == wanted and type(found) is type(wanted)
    assert torch.tensor([2.5 - 1j], device=DEVICE).conj().item() == 2.5 + 1j
    assert torch.tensor([2.5 - 1j], device=DEVICE).conj().imag.item() == 1
    assert torch._efficientzerotensor((1,), device=DEVICE).item() == 0
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        device.item()
