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


def test_inductor_is_refused_for_the_device_alone():
    def step(x):
        return x * 2 + 1

    with pytest.raises(Exception, match="no code generator for openreg.*aot_eager"):
        torch.compile(step)(torch.ones(3, device="openreg"))
    with pytest.raises(Exception, match="no code generator for openreg.*aot_eager"):
        torch.compile(lambda x: x.to("openreg") * 2)(torch.ones(3))
    torch.compiler.reset()


def test_data_parallel_is_refused():
    with pytest.raises(NotImplementedError, match="DistributedDataParallel"):
        torch.nn.DataParallel(torch.nn.Linear(2, 3).openreg())


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


@pytest.mark.parametrize("there, back", [("openreg:1", "cpu"), ("cpu", "openreg:1")])
def test_data_may_move_between_the_host_and_the_device(there, back):
    parameter = torch.nn.Parameter(torch.arange(3.0, device=back))
    values = parameter.detach().clone().cpu()
    version = parameter._version
    for device in (there, back):
        parameter.data = parameter.data.to(device)
        assert parameter.device == torch.device(device) and parameter.is_leaf
        assert torch.equal(parameter.detach().cpu(), values)
        # The gradient's accumulator has to follow.
        (parameter * 2).sum().backward()
        assert parameter.grad.device == parameter.device
        parameter.grad = None
    assert parameter._version == version


def test_data_of_another_layout_is_refused():
    tensor = torch.ones(2, 2, device="openreg")
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        tensor.data = torch.ones(2, 2).to_sparse()


def test_a_module_that_moves_keeps_its_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)  # made before the move
    model(torch.ones(2, 3)).sum().backward()
    before = list(model.parameters())
    for device in ("openreg", "cpu", "openreg:1"):
        model.to(device)
        assert all(new is old for new, old in zip(model.parameters(), before, strict=True))
        assert all(p.device.type == device.partition(":")[0] for p in model.parameters())
        assert all(p.grad.device == p.device for p in model.parameters())
    weight = model[0].weight.detach().cpu().clone()
    optimizer.zero_grad()
    model(torch.rand(4, 3, device="openreg:1")).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight.detach().cpu(), weight)


@pytest.mark.parametrize("how", ["overwrite", "swap"])
def test_the_other_ways_in_which_a_module_moves(how):
    name = f"{how}_module_params_on_conversion"
    before = getattr(torch.__future__, f"get_{name}")()
    getattr(torch.__future__, f"set_{name}")(True)
    try:
        model = torch.nn.Linear(3, 3)
        weight = model.weight
        model.to("openreg")
        assert model.weight.device.type == "openreg"
        assert (model.weight is weight) is (how == "swap")
    finally:
        getattr(torch.__future__, f"set_{name}")(before)


def test_module_to_device_and_default_device():
    with torch.device("openreg:1"):
        assert torch.zeros(2).device == torch.device("openreg:1")
        model = torch.nn.Linear(2, 2)
    assert model.weight.device.index == 1
    assert model.to("openreg:0").weight.device.index == 0
    assert model.cpu().weight.device.type == "cpu"
