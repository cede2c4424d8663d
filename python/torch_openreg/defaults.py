"""Where torch decides by the name of a device: openreg gets what the CPU gets.

openreg computes with the CPU's kernels, on the CPU's cores.
"""

import torch
from torch.nn.modules import linear_cross_entropy_options as loss_options


def _register_loss_defaults() -> None:
    """Makes linear_cross_entropy accumulate 16-bit losses in 32 bits, as on the CPU.

    Elsewhere it takes the device for one that has no mixed-precision matmul, and rounds coarsely.
    """
    table = loss_options._AUTO_DEFAULTS
    for dtype in (torch.bfloat16, torch.float16):
        table["openreg", dtype] = table["cpu", dtype]

    options = loss_options.LinearCrossEntropyOptions
    of_other_devices = options._resolve_auto_acc_dtype

    def resolve(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        if device is not None and device.type == "openreg":
            device = torch.device("cpu")
        return of_other_devices(dtype, device)

    options._resolve_auto_acc_dtype = staticmethod(resolve)  # type: ignore[method-assign]


def _keep_backward_on_its_thread() -> None:
    """Makes backward() run on the thread that calls it, as on the CPU.

    torch gives each device of another kind a thread of its own for it, whose kernels here would run
    on another core, with cold caches, after a hand-over. For this thread; others keep torch's way.
    """
    torch.autograd.set_multithreading_enabled(False)


def register(only_accelerator: bool) -> None:
    """Called once, after the device is registered.

    Args:
        only_accelerator: False leaves alone what would concern another accelerator, too.
    """
    _register_loss_defaults()
    if only_accelerator:
        _keep_backward_on_its_thread()
