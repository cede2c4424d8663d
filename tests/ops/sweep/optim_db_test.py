"""Every optimizer of torch's optim_db steps on openreg as on the CPU, in each of its settings.

Settings that a device may refuse (capturable, fused) work on openreg; the CPU's plain loop is what
they are compared with.
"""

import pytest
import torch
import torch_openreg  # noqa: F401 (registers the device)
from moving import Mover
from torch.testing._internal.common_optimizers import optim_db

DEVICE = "openreg"
STEPS = 3


def settings(info):
    """Yields (name, keyword arguments, keyword arguments of the CPU's loop)."""
    impls = [impl for impl in info.supported_impls if impl != "differentiable"]
    off = dict.fromkeys(impls, False)
    for given in info.optim_inputs_func(device="cpu"):
        loop = {**given.kwargs, **off}
        for impl in [None, *impls]:
            own = {**loop, impl: True} if impl else loop
            name = f"{given.desc}-{impl or 'loop'}"
            yield name, own, loop
            if info.has_capturable_arg and impl != "fused":
                yield f"{name}-capturable", {**own, "capturable": True}, loop


def cases():
    for info in optim_db:
        if info.only_supports_sparse_grads:
            continue
        for name, own, reference in settings(info):
            yield pytest.param(info, own, reference, id=f"{info.optim_cls.__name__}-{name}")


def stepped(info, options, device, dtype):
    """Returns parameters and state after some steps, on the host."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (5, 2)] if info.optim_cls is torch.optim.Muon else [(3, 4), (5,), (1,), ()]
    parameters = [torch.randn(s, dtype=dtype, generator=generator).to(device) for s in shapes]
    gradients = [
        [torch.randn(s, dtype=dtype, generator=generator).to(device) for s in shapes]
        for _ in range(STEPS)
    ]
    for parameter in parameters:
        parameter.requires_grad_()
    options = {
        key: value.to(device) if isinstance(value, torch.Tensor) and value.dim() else value
        for key, value in options.items()
    }
    optimizer = info.optim_cls(parameters, **options)
    for step in range(STEPS):
        for parameter, gradient in zip(parameters, gradients[step], strict=True):
            parameter.grad = gradient.clone()
        optimizer.step(lambda: torch.ones((), device=device))
    state = [dict(optimizer.state[parameter]) for parameter in parameters]
    return Mover("cpu").tree([[parameter.detach() for parameter in parameters], state])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(("info", "own", "reference"), list(cases()))
def test_it_steps_as_the_cpus_loop(info, own, reference, dtype):
    wanted = stepped(info, reference, "cpu", dtype)
    got = stepped(info, own, DEVICE, dtype)
    # What is capturable computes its step counts on the device, in float32.
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
