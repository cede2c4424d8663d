"""``torch.openreg``: what ``torch.cuda`` is for CUDA, for the openreg device.

Devices, streams, events, memory and random numbers. Functions take a device as an index, a string,
a :class:`torch.device` or None (the current device). The device is simulated: its work runs on
threads of this process, its memory cannot be touched by the host, and streams order its work as
CUDA's do. Everything here brings the device to life when it needs it; ``is_available``,
``device_count``, ``is_initialized`` and the seeds do not.
"""

import torch

from torch_openreg import _C
from torch_openreg.openreg import amp, memory, nvtx, random, sanitizer, streams
from torch_openreg.openreg import devices as devices
from torch_openreg.openreg.devices import (
    _exchange_device as _exchange_device,
)
from torch_openreg.openreg.devices import (
    _is_in_bad_fork as _is_in_bad_fork,
)
from torch_openreg.openreg.devices import (
    _lazy_init as _lazy_init,
)
from torch_openreg.openreg.devices import (
    _maybe_exchange_device as _maybe_exchange_device,
)
from torch_openreg.openreg.devices import (
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    ipc_collect,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torch_openreg.openreg.memory import (
    caching_allocator_alloc,
    caching_allocator_delete,
    empty_cache,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_reserved,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_openreg.openreg.random import (
    _get_generator as _get_generator,
)
from torch_openreg.openreg.random import (
    _get_rng_state_offset as _get_rng_state_offset,
)
from torch_openreg.openreg.random import (
    _set_rng_state_offset as _set_rng_state_offset,
)
from torch_openreg.openreg.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_openreg.openreg.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    is_current_stream_capturing,
    set_stream,
    stream,
)
from torch_openreg.openreg.streams import (
    _set_stream_by_id as _set_stream_by_id,
)

OutOfMemoryError = torch.OutOfMemoryError
AcceleratorError = torch.AcceleratorError


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every operator that the CPU has in bfloat16 works here."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("openreg", dtype=...)`` takes."""
    return [torch.float16, torch.bfloat16]


def __getattr__(name: str) -> object:
    if name == "default_generators":
        # Made when asked for: the number of devices may be set until then.
        return tuple(_C._default_generator(index) for index in range(device_count()))
    if name == "_initialized":  # torch.utils.checkpoint asks for it under CUDA's name
        return is_initialized()
    raise AttributeError(f"module 'torch.openreg' has no attribute '{name}'")


__all__ = [
    "AcceleratorError",
    "Event",
    "ExternalStream",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "nvtx",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "sanitizer",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
]
