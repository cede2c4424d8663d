"""Which tensors share memory, and what a call does to the tensors it is given."""

import copy

import pytest
import torch
import torch_openreg  # noqa: F401

DEVICE = "openreg"


def same_storage(left, right):
    return left.untyped_storage()._cdata == right.untyped_storage()._cdata


def test_a_lazily_conjugated_tensor_is_read_right():
    host = torch.randn(3, 4, dtype=torch.complex64)
    device = host.to(DEVICE)
    assert device.conj().is_conj()
    assert torch.equal(device.conj().cpu(), host.conj())
    assert torch.equal(device.conj().imag.cpu(), host.conj().imag)
    assert torch.equal((device.conj() @ device.mT).cpu(), host.conj() @ host.mT)
    for function in (torch.dot, torch.vdot):
        got = function(device[0].conj(), device[1])
        assert torch.equal(got.cpu(), function(host[0].conj(), host[1]))
    got = torch.addmm(device[:, :3].conj(), device.conj(), device.mH)
    assert torch.equal(got.cpu(), torch.addmm(host[:, :3].conj(), host.conj(), host.mH))
    assert torch.equal(device.conj().imag.neg().abs().cpu(), host.imag.abs())


def test_a_lazily_negated_tensor_is_read_right():
    device = torch.tensor([1 + 2j, 3 - 4j], device=DEVICE)
    negated = device.conj().imag
    assert negated.is_neg() and negated.cpu().tolist() == [-2, 4]
    assert (negated + 1).tolist() == [-1, 5] and negated.clone().is_neg() is False
    negated.mul_(2)
    assert device.tolist() == [1 + 4j, 3 - 8j]


def test_abs_of_complex_numbers_is_real():
    result = torch.tensor([3 + 4j, -5j], device=DEVICE).abs()
    assert result.dtype == torch.float32 and result.tolist() == [5, 5]


@pytest.mark.parametrize("view", [torch.view_as_real, torch.real, torch.imag])
def test_a_view_of_a_complex_tensor_writes_to_it(view):
    host = torch.randn(3, dtype=torch.complex64)
    device = host.to(DEVICE)
    for tensor in (host, device):
        view(tensor).fill_(7)
    assert same_storage(view(device), device)
    assert torch.equal(device.cpu(), host)


def test_a_complex_view_of_a_real_tensor_writes_to_it():
    device = torch.zeros(3, 2, device=DEVICE)
    torch.view_as_complex(device).fill_(1 + 2j)
    assert device.cpu().tolist() == [[1, 2]] * 3


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.unfold(0, 2, 1),
        lambda t: t.view(-1),
        lambda t: t.reshape(2, 8),
        lambda t: t.detach(),
        lambda t: t.diagonal(),
        lambda t: t.chunk(2)[1],
        lambda t: t.split([1, 3])[1],
        lambda t: t.view(torch.int32),
    ],
)
def test_a_view_is_one(view):
    host = torch.arange(16.0).view(4, 4)
    device = host.to(DEVICE)
    assert same_storage(view(device), device)
    assert view(device).storage_offset() == view(host).storage_offset()
    view(device).zero_()
    view(host).zero_()
    assert torch.equal(device.cpu(), host)


def test_results_that_share_a_storage_share_one():
    # One kernel returns views of one buffer.
    left = torch.split_with_sizes(torch.arange(6, device=DEVICE), [2, 4])
    assert same_storage(*left)


def test_resize_to_the_same_size_keeps_the_strides():
    tensor = torch.zeros(3, 4, device=DEVICE).t()
    tensor.resize_(4, 3)
    assert tensor.stride() == (1, 4)


def test_resize_keeps_what_was_there_and_views_of_it():
    tensor = torch.arange(4.0, device=DEVICE)
    view = tensor[1:3]
    tensor.resize_(100)
    assert tensor[:4].tolist() == [0, 1, 2, 3]
    view.fill_(9)
    assert tensor[:4].tolist() == [0, 9, 9, 3]


IMAGE = torch.arange(64.0).view(1, 4, 4, 4)
SQUARE = torch.tensor([[4.0, 1, 2], [1, 5, 3], [2, 3, 6]])
# Each writes one tensor, or several, of the shapes that it returns.
OUT_CALLS = {
    "avg_pool3d": lambda d, **o: torch.ops.aten.avg_pool3d(IMAGE.to(d), [2, 2, 2], **o),
    "linalg.lu_factor": lambda d, **o: torch.linalg.lu_factor(SQUARE.to(d), **o),
    "linalg.qr": lambda d, **o: torch.linalg.qr(SQUARE.to(d), **o),
    "matmul": lambda d, **o: torch.matmul(SQUARE.to(d), SQUARE.to(d), **o),
    "mode": lambda d, **o: torch.mode(SQUARE.to(d), 1, **o),
    "narrow_copy": lambda d, **o: torch.narrow_copy(SQUARE.to(d), 1, 0, 2, **o),
    "ones": lambda d, **o: torch.ones(3, 3, device=d, **o),
    "softmax": lambda d, **o: torch.softmax(SQUARE.to(d), 1, **o),
    "sort": lambda d, **o: torch.sort(SQUARE.to(d), 1, **o),
    "tril": lambda d, **o: torch.tril(SQUARE.to(d), **o),
    "triu": lambda d, **o: torch.triu(SQUARE.to(d), **o),
}


def with_gaps(result):
    """Every second element of a storage, in the reverse order of dimensions."""
    shape = (*reversed(result.shape), 2)
    storage = torch.full(shape, 7, dtype=result.dtype, device=result.device)
    return storage[..., 0].permute(*reversed(range(result.dim())))


@pytest.mark.parametrize("name", OUT_CALLS)
def test_out_with_gaps_is_filled_and_keeps_its_strides(name):
    call = OUT_CALLS[name]
    sides = []
    for device in ("cpu", DEVICE):
        plain = call(device)
        several = isinstance(plain, tuple)
        outs = tuple(with_gaps(result) for result in (plain if several else (plain,)))
        strides = [out.stride() for out in outs]
        returned = call(device, out=outs if several else outs[0])
        for got, out, before in zip(
            returned if several else (returned,), outs, strides, strict=True
        ):
            assert got is out and out.stride() == before
        # With what lies in the gaps.
        sides.append([out.as_strided((2 * out.numel(),), (1,)).cpu() for out in outs])
    torch.testing.assert_close(sides[1], sides[0])


def test_random_numbers_go_to_an_out_with_gaps():
    out = with_gaps(torch.zeros(3, 4, device=DEVICE))
    before = out.stride()
    assert torch.randn(3, 4, out=out) is out and out.stride() == before
    assert out.unique().numel() == 12 and out.as_strided((12,), (2,), 1).eq(7).all()


def test_an_out_that_is_too_small_grows():
    out = torch.empty(0, device=DEVICE)
    torch.add(torch.ones(5, device=DEVICE), 1, out=out)
    assert out.tolist() == [2] * 5 and out.untyped_storage().nbytes() >= 20


def test_out_of_mode_and_max():
    host = torch.tensor([[1.0, 2, 2], [3, 3, 1]])
    for function in (torch.mode, torch.max, torch.sort):
        outs = (torch.empty(0, device=DEVICE), torch.empty(0, dtype=torch.long, device=DEVICE))
        function(host.to(DEVICE), 1, out=outs)
        for got, wanted in zip(outs, function(host, 1), strict=True):
            assert torch.equal(got.cpu(), wanted)


def test_out_that_is_an_input_follows_the_rules_of_in_place():
    tensor = torch.ones(5, 1, device=DEVICE)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.mul(tensor, torch.ones(5, 5, device=DEVICE), out=tensor)


def test_in_place_returns_the_tensor_itself_and_counts_versions():
    tensor = torch.zeros(2, device=DEVICE)
    assert tensor.add_(1) is tensor
    assert tensor._version == 1
    leaf = torch.ones(2, device=DEVICE, requires_grad=True)
    product = leaf * tensor
    tensor.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_set_takes_another_tensors_storage():
    source = torch.arange(6.0, device=DEVICE)
    tensor = torch.empty(0, device=DEVICE).set_(source.untyped_storage(), 2, (2,), (2,))
    assert tensor.tolist() == [2, 4] and same_storage(tensor, source)
    assert tensor.set_().numel() == 0


def test_deepcopy_keeps_sharing_and_strides():
    base = torch.arange(12.0, device=DEVICE).view(3, 4)
    first, second = copy.deepcopy([base, base.t()])
    assert same_storage(first, second) and not same_storage(first, base)
    assert second.stride() == (1, 4) and torch.equal(second.cpu(), base.t().cpu())


def test_a_lazy_copy_is_made_before_it_is_written():
    base = torch.zeros(3, device=DEVICE)
    lazy = base._lazy_clone()
    lazy.add_(1)
    assert base.tolist() == [0, 0, 0] and lazy.tolist() == [1, 1, 1]
