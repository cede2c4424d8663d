"""Every module of torch's module_db gives on openreg what it gives on the CPU, in training too.

Each input of the database: outputs, gradients of parameters and inputs, and the state afterwards.
"""

import copy
import functools

import comparing
import pytest
import torch
import torch_openreg  # noqa: F401 (registers the device)
from moving import Mover, tensors_of
from torch.nn.modules.lazy import LazyModuleMixin
from torch.testing._internal.common_modules import module_db

DEVICE = "openreg"
DTYPES = {"float32": torch.float32, "float64": torch.float64, "complex64": torch.complex64}
MODULES = {info.name: info for info in module_db}


def cases():
    for name, info in sorted(MODULES.items()):
        for dtype_name, dtype in DTYPES.items():
            if dtype in info.supported_dtypes("cpu"):
                yield pytest.param(info, dtype, id=f"{name}-{dtype_name}")


def results(module, forward_input, device):
    """Returns what the module gives: outputs, gradients, state afterwards."""
    module = copy.deepcopy(module).to(device)
    args, kwargs = Mover(device).tree((forward_input.args, forward_input.kwargs))
    torch.default_generator.manual_seed(0)
    torch.openreg.manual_seed(0)
    outputs = module(*args, **kwargs)
    differentiable = [t for t in tensors_of(outputs) if t.requires_grad]
    wanted = [t for t in [*module.parameters(), *tensors_of((args, kwargs))] if t.requires_grad]
    gradients = ()
    if differentiable and wanted:
        generator = torch.Generator().manual_seed(1)
        starts = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in differentiable]
        starts = [start.to(device) for start in starts]
        gradients = torch.autograd.grad(differentiable, wanted, starts, allow_unused=True)
    return outputs, list(gradients), module.state_dict()


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize(("info", "dtype"), list(cases()))
def test_it_computes_as_on_the_cpu(info, dtype, training):
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )
    assert inputs
    for sample in inputs:
        torch.manual_seed(0)
        made = sample.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(dtype)
        if isinstance(module, LazyModuleMixin):
            module(*sample.forward_input.args, **sample.forward_input.kwargs)
        module.train(training)
        run = functools.partial(results, module, sample.forward_input)
        comparing.compare_structures(
            f"{info.name} {sample.desc}", run("cpu"), run(DEVICE), torch.device(DEVICE)
        )
