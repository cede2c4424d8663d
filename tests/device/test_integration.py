"""What torch builds on a device: checkpointing, compilation, DLPack, DDP's timer."""

import pytest
import torch
import torch.utils.checkpoint
import torch.utils.dlpack
import torch_openreg  # noqa: F401


def test_checkpoint_repeats_the_random_numbers():
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).openreg()
    x = torch.ones(4, 8, device="openreg", requires_grad=True)
    for reentrant in (False, True):
        torch.manual_seed(1)
        layer(x).sum().backward()
        expected, x.grad = x.grad, None
        torch.manual_seed(1)
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
        assert torch.equal(x.grad.cpu(), expected.cpu())
        x.grad = None


def test_compile_with_aot_eager():
    def step(x, weight):
        return torch.nn.functional.gelu(x @ weight).sum()

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    weights = [torch.ones(8, 8, device="openreg", requires_grad=True) for _ in range(2)]
    x = torch.randn(4, 8, device="openreg")
    results = [step(x, weights[0]), compiled(x, weights[1])]
    for result in results:
        result.backward()
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(weights[0].grad, weights[1].grad)


def test_dlpack_by_the_capsule():
    tensor = torch.arange(4.0, device="openreg:1")
    twin = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))
    twin.add_(1)
    assert twin.device == tensor.device
    assert tensor.tolist() == [1, 2, 3, 4]


def test_dlpacks_python_protocol_refuses_a_renamed_device():
    with pytest.raises((ValueError, BufferError)):
        torch.ones(3, device="openreg").__dlpack_device__()


def test_a_generator_for_a_data_loader_of_device_tensors():
    data = torch.utils.data.TensorDataset(torch.arange(10.0, device="openreg"))
    seen = torch.cat([batch for (batch,) in torch.utils.data.DataLoader(data, batch_size=3)])
    assert seen.device.type == "openreg" and seen.tolist() == list(range(10))


def test_module_to_device_and_default_device():
    with torch.device("openreg:1"):
        assert torch.zeros(2).device == torch.device("openreg:1")
        model = torch.nn.Linear(2, 2)
    assert model.weight.device.index == 1
    assert model.to("openreg:0").weight.device.index == 0
    assert model.cpu().weight.device.type == "cpu"
