"""Foreach operators: lists of tensors, as the CPU computes them."""

import pytest
import torch
import torch_openreg  # noqa: F401

DEVICE = "openreg"
# As many as make the search for shared storages go another way, and fewer.
COUNTS = [1, 2, 13, 70]


def _tensors(count: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(i % 5, 3, generator=generator) + 0.5 for i in range(count)]


def _views(count: int, seed: int) -> list[torch.Tensor]:
    """Of one buffer, one after the other."""
    flat = torch.rand(3 * count, generator=torch.Generator().manual_seed(seed)) + 0.5
    return list(flat.split(3))


IN_PLACE = {
    "add": lambda a, b, c: torch._foreach_add_(a, b, alpha=2),
    "add scalars": lambda a, b, c: torch._foreach_add_(a, [float(i) for i in range(len(a))]),
    "addcdiv": lambda a, b, c: torch._foreach_addcdiv_(a, b, c, 0.5),
    "addcmul": lambda a, b, c: torch._foreach_addcmul_(a, b, c, 0.5),
    "clamp": lambda a, b, c: torch._foreach_clamp_min_(a, 0.7),
    "copy": lambda a, b, c: torch._foreach_copy_(a, b),
    "exp": lambda a, b, c: torch._foreach_exp_(a),
    "lerp": lambda a, b, c: torch._foreach_lerp_(a, b, 0.25),
    "mul tensor": lambda a, b, c: torch._foreach_mul_(a, torch.tensor(3.0, device=a[0].device)),
    "sqrt": lambda a, b, c: torch._foreach_sqrt_(a),
    "zero": lambda a, b, c: torch._foreach_zero_(a),
}
MAKING = {
    "add": lambda a, b, c: torch._foreach_add(a, b),
    "addcmul": lambda a, b, c: torch._foreach_addcmul(a, b, c),
    "clamp": lambda a, b, c: torch._foreach_clamp_max(a, b),
    "norm": lambda a, b, c: torch._foreach_norm(a),
    "pow": lambda a, b, c: torch._foreach_pow(a, 2.0),
    "sqrt": lambda a, b, c: torch._foreach_sqrt(a),
}


def _on(device: str, lists: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """Copies on the device; views of one buffer stay so."""
    moved = []
    for tensors in lists:
        base = tensors[0]._base
        if base is None:
            moved.append([t.to(device, copy=True) for t in tensors])
        else:
            copy = base.to(device, copy=True)
            moved.append(
                [copy.as_strided(t.size(), t.stride(), t.storage_offset()) for t in tensors]
            )
    return moved


@pytest.mark.parametrize("make", [_tensors, _views])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name, count, make):
    lists = [make(count, seed) for seed in range(3)]
    host, device = _on("cpu", lists), _on(DEVICE, lists)
    IN_PLACE[name](*host)
    IN_PLACE[name](*device)
    for a, b in zip(host[0], device[0], strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=0, atol=0)


@pytest.mark.parametrize("make", [_tensors, _views])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", MAKING)
def test_new_tensors(name, count, make):
    lists = [make(count, seed) for seed in range(3)]
    host, device = MAKING[name](*_on("cpu", lists)), MAKING[name](*_on(DEVICE, lists))
    for a, b in zip(host, device, strict=True):
        assert b.device.type == DEVICE and b.stride() == a.stride()
        torch.testing.assert_close(b.cpu(), a, rtol=0, atol=0)


@pytest.mark.parametrize("count", COUNTS)
def test_a_tensor_that_comes_twice(count):
    for device in ("cpu", DEVICE):
        tensors = [torch.full((2,), float(i), device=device) for i in range(count)]
        torch._foreach_add_(tensors, tensors)
        torch._foreach_mul_([tensors[-1]] * 3, 2.0)
        assert [t[0].item() for t in tensors[:-1]] == [2.0 * i for i in range(count - 1)]
        assert tensors[-1].tolist() == [16.0 * (count - 1)] * 2


@pytest.mark.parametrize("count", COUNTS)
def test_tensors_that_overlap_are_refused_as_on_the_cpu(count):
    for device in ("cpu", DEVICE):
        many = _on(device, [_tensors(count, 0)])[0]
        buffer = torch.arange(4.0, device=device)
        with pytest.raises(RuntimeError, match="some elements of the input tensor"):
            torch._foreach_add_([*many, buffer[:3]], [*many, buffer[1:]])


def test_zero_and_copy_of_what_is_not_plain_bytes():
    def run(device: str) -> list[torch.Tensor]:
        base = torch.arange(24.0, device=device).reshape(4, 6)
        spaced, turned = base[:, ::2], torch.arange(6.0, device=device).reshape(2, 3).t()
        number = torch.tensor([1 + 2j, 3 - 1j], device=device)
        torch._foreach_zero_([spaced, turned, base[0, :0]])
        whole = torch.ones(3, 2, device=device)
        torch._foreach_copy_([turned, number], [whole, torch.tensor([1j, 2], device=device).conj()])
        narrow = torch.zeros(3, 2, dtype=torch.float64, device=device)
        torch._foreach_copy_([narrow, whole], [turned, torch.full((1, 2), 4.0, device=device)])
        return [base, turned, number, narrow, whole]

    for a, b in zip(run("cpu"), run(DEVICE), strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=0, atol=0)


def test_bad_lists_are_errors():
    a, b = torch.ones(2, device=DEVICE), torch.ones(2, device="openreg:1")
    for call in (
        lambda: torch._foreach_zero_([]),
        lambda: torch._foreach_add_([a], [a, a]),
        lambda: torch._foreach_copy_([a], [a, a]),
        lambda: torch._foreach_add_([a], [b]),
        lambda: torch._foreach_add_([a, b], 1.0),
        lambda: torch._foreach_zero_([a, b]),
        lambda: torch._foreach_add_([a], [torch.ones(3, device=DEVICE)]),
    ):
        with pytest.raises(RuntimeError):
            call()
    assert a.tolist() == [1, 1]
