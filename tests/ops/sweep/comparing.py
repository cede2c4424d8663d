"""What has to be equal between a result on the CPU and the same result on the device."""

import torch
from moving import leaves, tensors_of


class Difference(AssertionError):
    """A result on the device that is not what the CPU gives."""


class DifferentNumbers(Difference):
    """Everything but the numbers is equal: right for a random operator."""


def fail(what, cpu, device):
    """Raises Difference with both sides."""
    raise Difference(f"{what}: cpu {_short(cpu)}, device {_short(device)}")


def _short(value):
    text = repr(value)
    return text if len(text) < 160 else text[:160] + "..."


def equal(left, right):
    """True if two tensors of the CPU have equal numbers, NaN being equal to NaN."""
    if left.layout != torch.strided:
        left, right = left.to_dense(), right.to_dense()
    if left.dtype == torch.complex32:  # has few operators
        left, right = left.to(torch.complex64), right.to(torch.complex64)
    return left.shape == right.shape and (
        torch.equal(left, right) or torch.allclose(left, right, rtol=0, atol=0, equal_nan=True)
    )


def compare_values(what, cpu, device):
    """Compares two tensors, or two other results: bit by bit first, then as torch.testing."""
    if isinstance(cpu, torch.Tensor):
        host = device.detach().cpu()
        cpu = cpu.detach()
        if equal(cpu, host):
            return
        try:
            torch.testing.assert_close(host, cpu, equal_nan=True, check_stride=False)
        except AssertionError as error:
            raise DifferentNumbers(f"{what}: values: {error}") from None
    elif cpu != device and not (cpu != cpu and device != device):  # noqa: PLR0124 (NaN)
        fail(f"{what}: value", cpu, device)


def compare_metadata(what, cpu, device, expected_device):
    """Compares all of two tensors but the numbers; the device only if one is expected."""
    if expected_device is not None and device.device.type != expected_device.type:
        fail(f"{what}: device", cpu.device, device.device)
    for name in ("dtype", "shape", "layout", "requires_grad"):
        if getattr(cpu, name) != getattr(device, name):
            fail(f"{what}: {name}", getattr(cpu, name), getattr(device, name))
    for name in ("is_conj", "is_neg", "is_inference"):
        if getattr(cpu, name)() != getattr(device, name)():
            fail(f"{what}: {name}", getattr(cpu, name)(), getattr(device, name)())
    if cpu.layout != torch.strided:
        return
    if cpu.stride() != device.stride():
        fail(f"{what}: strides", cpu.stride(), device.stride())
    if cpu.storage_offset() != device.storage_offset():
        fail(f"{what}: storage_offset", cpu.storage_offset(), device.storage_offset())


def relations(arguments, results):
    """Returns who shares a storage with whom, and who is whom, as numbers that can be compared."""
    tensors = tensors_of(arguments) + tensors_of(results)
    storages, identities = {}, {}
    shared = []
    for tensor in tensors:
        if tensor.layout != torch.strided:
            continue
        storage = storages.setdefault(tensor.untyped_storage()._cdata, len(storages))
        identity = identities.setdefault(id(tensor), len(identities))
        shared.append((storage, identity))
    return shared


def structure(values):
    """Returns the types of lists, tuples and dicts, without what they hold, to be compared."""
    if isinstance(values, (list, tuple)):
        return type(values), [structure(value) for value in values]
    if isinstance(values, dict):
        return dict, [(key, structure(value)) for key, value in values.items()]
    return None


def compare_structures(what, cpu, device, expected_device, *, values=True):
    """Compares two results of any structure. values=False: all but the numbers."""
    if structure(cpu) != structure(device):
        fail(f"{what}: structure", structure(cpu), structure(device))
    cpu_leaves, device_leaves = leaves(cpu), leaves(device)
    for index, (left, right) in enumerate(zip(cpu_leaves, device_leaves, strict=True)):
        name = f"{what}[{index}]" if len(cpu_leaves) > 1 else what
        if isinstance(left, torch.Tensor) != isinstance(right, torch.Tensor):
            fail(f"{name}: type", type(left), type(right))
        if isinstance(left, torch.Tensor):
            compare_metadata(name, left, right, expected_device)
        if values and not isinstance(left, (torch.device, torch.Generator)):
            compare_values(name, left, right)
