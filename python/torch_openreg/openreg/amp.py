"""Automatic mixed precision under the names of ``torch.cuda.amp``.

torch calls those names deprecated: new programs use ``torch.autocast("openreg", ...)``,
``torch.amp.GradScaler("openreg")`` and ``torch.amp.custom_fwd(..., device_type="openreg")``, which
these stand for.
"""

from functools import partial

import torch
from torch.amp import autocast_mode

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.autocast):  # noqa: N801, named as torch.cuda.amp.autocast
    """``torch.autocast("openreg", ...)``, to `dtype` (float16 or bfloat16)."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("openreg", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("openreg", ...)``."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "openreg", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


custom_fwd = partial(autocast_mode.custom_fwd, device_type="openreg")
custom_bwd = partial(autocast_mode.custom_bwd, device_type="openreg")
