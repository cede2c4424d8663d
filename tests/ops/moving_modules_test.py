"""Moving modules to the device: parameters stay the same objects, as with CUDA."""

import torch
import torch_openreg  # noqa: F401

DEVICE = "openreg"


def test_an_optimizer_that_was_made_before_trains_the_moved_parameters():
    module = torch.nn.Linear(3, 2)
    parameters = list(module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module.to(DEVICE)
    assert all(new is old for new, old in zip(module.parameters(), parameters, strict=True))
    assert all(parameter.device.type == DEVICE for parameter in parameters)
    before = module.bias.tolist()
    module(torch.ones(1, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(module.bias.tolist(), [value - 1 for value in before])
    module.cpu()
    assert module.bias is parameters[1] and module.bias.device.type == "cpu"
    assert module.bias.grad.device.type == "cpu"


def test_data_may_come_from_another_device():
    tensor = torch.zeros(2, requires_grad=True)
    tensor.data = torch.ones(3, device="openreg:1")
    assert tensor.device == torch.device("openreg:1") and tensor.tolist() == [1, 1, 1]
    (tensor * 2).sum().backward()
    assert tensor.grad.device == tensor.device
    tensor.grad = None
    tensor.data = torch.full((1,), 5.0)
    assert tensor.device.type == "cpu" and tensor.tolist() == [5]


def test_a_lazy_module_is_made_on_the_device_it_was_moved_to():
    module = torch.nn.LazyLinear(3).to(DEVICE)
    assert module(torch.ones(2, 5, device=DEVICE)).shape == (2, 3)
    assert module.weight.shape == (3, 5) and module.weight.device.type == DEVICE


def test_tied_parameters_stay_tied():
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    torch.nn.Sequential(first, second).to(DEVICE)
    assert second.weight is first.weight and first.weight.device.type == DEVICE
