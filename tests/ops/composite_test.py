"""Tensors that are made of dense ones: sparse and nested."""

import copy
import io

import pytest
import torch
import torch_openreg  # noqa: F401

DEVICE = "openreg"
DENSE = torch.tensor([[0.0, 2, 0], [3, 0, 0], [0, 0, 5], [0, 0, 0]])
LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc"]


def to_layout(dense, layout):
    return dense.to_sparse(layout=getattr(torch, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_and_back(layout):
    device = to_layout(DENSE.to(DEVICE), layout)
    assert device.device.type == DEVICE and device.layout == getattr(torch, layout)
    assert device.values().device.type == DEVICE
    assert torch.equal(device.to_dense().cpu(), DENSE)
    # Between the host and the device, both ways.
    there = to_layout(DENSE, layout).to(DEVICE)
    assert there.device.type == DEVICE and torch.equal(there.to_dense().cpu(), DENSE)
    back = there.cpu()
    assert back.device.type == "cpu" and torch.equal(back.to_dense(), DENSE)
    assert "device='openreg:0'" in repr(there)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arithmetic(layout):
    factor = torch.arange(6.0).view(3, 2)
    host, device = to_layout(DENSE, layout), to_layout(DENSE, layout).to(DEVICE)
    assert torch.equal((device @ factor.to(DEVICE)).cpu(), host @ factor)
    for got, wanted in ((device * 2, host * 2), (device + device, host + host), (-device, -host)):
        assert got.layout == wanted.layout and torch.equal(got.to_dense().cpu(), wanted.to_dense())
    assert device.sum().item() == 10


def test_they_stay_on_their_device():
    sparse = DENSE.to("openreg:1").to_sparse()
    assert sparse.device == torch.device("openreg:1") == (sparse * 2).device
    nested = torch.nested.nested_tensor([torch.ones(2)], device="openreg:1")
    assert (nested * 2).device == torch.device("openreg:1")


def test_sparse_tensors_share_the_memory_of_their_values():
    values = torch.tensor([1.0, 2.0], device=DEVICE)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]], device=DEVICE), values, (3,))
    values.mul_(10)
    assert sparse.to_dense().tolist() == [10, 0, 20]
    sparse._values().add_(1)
    assert values.tolist() == [11, 21]


def test_duplicates_are_summed_once_coalesced():
    indices = torch.tensor([[2, 0, 2]], device=DEVICE)
    sparse = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2, 3], device=DEVICE), (3,))
    assert not sparse.is_coalesced()
    coalesced = sparse.coalesce()
    assert coalesced.is_coalesced() and coalesced._nnz() == 2
    assert coalesced.indices().tolist() == [[0, 2]] and coalesced.values().tolist() == [2, 4]


def test_in_place_changes_the_tensor_itself():
    sparse = DENSE.to(DEVICE).to_sparse()
    result = sparse.add_(torch.eye(4, 3, device=DEVICE).to_sparse())
    assert result is sparse
    assert torch.equal(sparse.to_dense().cpu(), DENSE + torch.eye(4, 3))
    sparse.zero_()
    assert sparse._nnz() == 0
    sparse.copy_(DENSE.to_sparse())
    assert torch.equal(sparse.to_dense().cpu(), DENSE)


def test_copies_and_files():
    sparse = DENSE.to(DEVICE).to_sparse()
    clone = copy.deepcopy(sparse)
    sparse.mul_(0)
    assert torch.equal(clone.to_dense().cpu(), DENSE)
    file = io.BytesIO()
    torch.save(clone, file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded.device.type == DEVICE and torch.equal(loaded.to_dense().cpu(), DENSE)


def test_an_embedding_with_sparse_gradients_trains():
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(10, 3, sparse=True).to(device)
        optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            embedding(torch.tensor([1, step, 1], device=device)).square().sum().backward()
            assert embedding.weight.grad.is_sparse
            optimizer.step()
        results.append(embedding.weight.detach().cpu())
    torch.testing.assert_close(results[1], results[0])


def test_gradients_go_through_a_sparse_product():
    gradients = []
    for device in ("cpu", DEVICE):
        matrix = DENSE.to(device).to_sparse().requires_grad_()
        factor = torch.ones(3, 2, device=device, requires_grad=True)
        torch.sparse.mm(matrix, factor).square().sum().backward()
        gradients.append((matrix.grad.to_dense().cpu(), factor.grad.cpu()))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_nested_tensor_computes():
    parts = [torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3)]
    weight = torch.arange(6.0).view(2, 3)
    results = []
    for device in ("cpu", DEVICE):
        nested = torch.nested.nested_tensor([part.to(device) for part in parts])
        assert nested.device.type == device
        result = torch.nn.functional.linear(nested * 2 + nested, weight.to(device)).relu()
        assert result.is_nested and result.device.type == device
        results.append([part.cpu() for part in result.unbind()])
        results[-1].append(torch.nested.to_padded_tensor(result, -1.0).cpu())
    torch.testing.assert_close(results[1], results[0])


def test_an_unbound_part_is_a_view_of_its_nested_tensor():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=DEVICE)
    nested.unbind()[1].fill_(7)
    assert [part.tolist() for part in nested.unbind()] == [[1, 1], [7, 7, 7]]


def test_an_encoder_skips_padding_through_nested_tensors():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    inputs = torch.randn(2, 5, 16)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    with torch.no_grad():
        wanted = model(inputs, src_key_padding_mask=padding)
        model.to(DEVICE)
        got = model(inputs.to(DEVICE), src_key_padding_mask=padding.to(DEVICE))
    torch.testing.assert_close(got.cpu(), wanted)


def test_what_the_cpu_does_not_compute_is_an_error_that_says_so():
    with pytest.raises(NotImplementedError, match="does not exist for openreg with such tensors"):
        DENSE.to(DEVICE).to_sparse().cumsum(0)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_the_backward_of_a_reduced_product(reduce, wanted):
    def gradients(device: str) -> list[torch.Tensor | None]:
        sparse = to_layout(DENSE, "sparse_csr").to(device).requires_grad_(wanted[0])
        other = torch.arange(6.0).reshape(3, 2).to(device).requires_grad_(wanted[1])
        product = torch.sparse.mm(sparse, other, reduce)
        (product * torch.arange(1.0, 9.0).reshape(4, 2).to(device)).sum().backward()
        return [product.detach(), sparse.grad, other.grad]

    for host, device in zip(gradients("cpu"), gradients(DEVICE), strict=True):
        assert (host is None) == (device is None)
        if host is not None:
            assert device.device.type == "openreg" and device.layout == host.layout
            torch.testing.assert_close(device.cpu(), host)
