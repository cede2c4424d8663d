"""Where torch keeps defaults in tables by device that know only its own devices: openreg's entries.

openreg computes with the CPU's kernels, so its entries are the CPU's.
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


def register() -> None:
    """Enters openreg into the tables. Called once, after the device is registered."""
    _register_loss_defaults()
