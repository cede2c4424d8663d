"""Every optimizer of torch.optim steps on the device as on the CPU, in each of its forms."""

import inspect
import warnings

import pytest
import torch
import torch_openreg  # noqa: F401

DEVICE = "openreg"
OPTIMIZERS = [
    cls
    for _, cls in sorted(vars(torch.optim).items())
    if inspect.isclass(cls)
    and issubclass(cls, torch.optim.Optimizer)
    and cls not in (torch.optim.Optimizer, torch.optim.SparseAdam)
]


def forms():
    for cls in OPTIMIZERS:
        parameters = inspect.signature(cls).parameters
        for form in ("plain", "foreach", "fused"):
            if form == "plain" or form in parameters:
                yield pytest.param(cls, form, id=f"{cls.__name__}-{form}")


def trained(cls, form, device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    model.to(device)
    options = {"lr": 0.05}
    if form != "plain":
        options[form] = True
    elif "foreach" in inspect.signature(cls).parameters:
        options["foreach"] = False
    # Muon takes matrices only.
    parameters = [p for p in model.parameters() if cls.__name__ != "Muon" or p.dim() == 2]
    optimizer = cls(parameters, **options)
    inputs, targets = torch.randn(16, 4).to(device), torch.randn(16, 2).to(device)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        return loss

    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step(closure)
    return [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize(("cls", "form"), list(forms()))
def test_it_steps_as_on_the_cpu(cls, form):
    for got, wanted in zip(trained(cls, form, DEVICE), trained(cls, form, "cpu"), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("fused", [False, True])
def test_the_scaler_skips_steps_with_infinite_gradients(fused):
    weight = torch.ones(3, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=1)
    for factor, scale in ((1.0, 8.0), (float("inf"), 4.0)):
        optimizer.zero_grad()
        before = weight.detach().clone()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(weight, before) == (factor != 1.0)
        assert scaler.get_scale() == scale


def test_unscale_divides_the_gradients():
    weight = torch.ones(3, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=16.0)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [1, 1, 1]
