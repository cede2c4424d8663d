"""``torch.backends.openreg``: the settings that programs reach through ``torch.backends.cuda``.

The attention switches are torch's own, one set for all devices, and have their effect here too.
``matmul`` allows faster products of less precision where a device has them; openreg has none, so
its products are always of full precision, whatever is allowed.
"""

from torch.backends.cuda import (
    SDPAParams,
    can_use_efficient_attention,
    can_use_flash_attention,
    cudnn_sdp_enabled,
    enable_cudnn_sdp,
    enable_flash_sdp,
    enable_math_sdp,
    enable_mem_efficient_sdp,
    flash_sdp_enabled,
    is_flash_attention_available,
    math_sdp_enabled,
    matmul,
    mem_efficient_sdp_enabled,
    sdp_kernel,
)

__all__ = [
    "SDPAParams",
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "sdp_kernel",
]


def is_built() -> bool:
    """True: this package is openreg's backend."""
    return True
