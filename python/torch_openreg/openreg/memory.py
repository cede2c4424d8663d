"""Device memory: how much there is, who uses it, and the caching allocator.

Sizes are bytes. The allocator keeps freed blocks for later tensors (`reserved` counts them,
`allocated` does not). All devices of a process share one limit, OPENREG_DEVICE_MEMORY.
"""

from collections import OrderedDict
from typing import Any

import torch

from torch_openreg import _C
from torch_openreg.openreg.devices import Device, _device_index, _lazy_init, is_initialized
from torch_openreg.openreg.streams import current_stream


def _existing_index(device: Device) -> int:
    # torch's own functions take an index of 8 bits and know no better error than TypeError.
    return _C._resolve_device(_device_index(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of `device`. Cached blocks count as free."""
    _lazy_init()
    return _C._mem_get_info(_device_index(device))


def empty_cache() -> None:
    """Gives cached memory that no tensor uses back to the system, on all devices."""
    torch.accelerator.memory.empty_cache()


def memory_stats(device: Device = None) -> "OrderedDict[str, Any]":
    """Counters of the allocator, by torch's names (``"allocated_bytes.all.current"``, ...).

    Each of allocation, segment, active, inactive_split (counts) and allocated_bytes,
    reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes has, for the pools all,
    small_pool (allocations up to 1 MiB) and large_pool: current, peak, allocated and freed (running
    totals). Empty before the device's first use.
    """
    stats: OrderedDict[str, Any] = torch.accelerator.memory.memory_stats(_existing_index(device))
    return stats


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """:func:`memory_stats` with a dictionary for each dot in the names."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *groups, last = name.split(".")
        group = nested
        for key in groups:
            group = group.setdefault(key, {})
        group[last] = value
    return nested


def memory_allocated(device: Device = None) -> int:
    """Bytes of live tensors on `device`."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Device = None) -> int:
    """Most bytes of live tensors on `device` since the start or reset_peak_memory_stats."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Device = None) -> int:
    """Bytes that the allocator has from the system for `device`, cached ones included."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Device = None) -> int:
    """Most bytes that the allocator had since the start or reset_peak_memory_stats."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Peaks start again from the current values."""
    torch.accelerator.memory.reset_peak_memory_stats(_existing_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Running totals (allocated, freed, retries, refusals) start again from 0."""
    torch.accelerator.memory.reset_accumulated_memory_stats(_existing_index(device))


def reset_max_memory_allocated(device: Device = None) -> None:
    """As reset_peak_memory_stats, which resets this peak and the others."""
    reset_peak_memory_stats(device)


def reset_max_memory_reserved(device: Device = None) -> None:
    """As reset_peak_memory_stats, which resets this peak and the others."""
    reset_peak_memory_stats(device)


def host_memory_stats() -> "OrderedDict[str, Any]":
    """Counters of the allocator of pinned memory, by torch's names (as torch.cuda's).

    allocations and allocated_bytes count what it has from the system, active_requests and
    active_bytes what is in use; each has current, peak, allocated and freed (running totals).
    host_alloc_time and host_free_time (microseconds) have total, max, min, count and avg. Blocks
    are powers of two. Empty before the device's first use.
    """
    stats: dict[str, Any] = {}
    for name, value in host_memory_stats_as_nested_dict().items():
        if isinstance(value, dict):
            stats |= {f"{name}.{key}": number for key, number in value.items()}
        else:
            stats[name] = value
    return OrderedDict(sorted(stats.items()))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """:func:`host_memory_stats` with a dictionary for each group."""
    return dict(_C._host_memory_stats()) if is_initialized() else {}


def reset_accumulated_host_memory_stats() -> None:
    """Running totals of :func:`host_memory_stats` start again from 0."""
    _C._reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Peaks of :func:`host_memory_stats` start again from the current values."""
    _C._reset_peak_host_memory_stats()


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limits `device` to `fraction` of the total memory; more is torch.OutOfMemoryError.

    Raises TypeError unless `fraction` is a float, ValueError outside of 0 to 1.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"fraction: expected a float, got {type(fraction).__name__}")
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction: expected 0 < fraction <= 1, got {fraction}")
    _lazy_init()
    _C._set_memory_fraction(_device_index(device), fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The fraction of the total memory that `device` may use, 1.0 by default."""
    _lazy_init()
    return _C._get_memory_fraction(_device_index(device))


def caching_allocator_alloc(
    size: int, device: Device = None, stream: torch.Stream | int | None = None
) -> int:
    """Allocates `size` bytes for `stream` (object or handle; default: the current one).

    Returns the address, in the device's range: the host cannot touch it. Free it with
    :func:`caching_allocator_delete`. Raises ValueError for a negative size or a stream of another
    device, torch.OutOfMemoryError.
    """
    _lazy_init()
    if size < 0:
        raise ValueError(f"size: expected at least 0 bytes, got {size}")
    index = _device_index(device)
    if stream is None:
        stream = current_stream(index)
    elif isinstance(stream, int):
        stream = _C._external_stream(stream)
    if stream.device_index != index:
        raise ValueError(
            f"stream: expected one of {torch.device('openreg', index)}, got one of {stream.device}"
        )
    return _C._caching_allocator_alloc(size, stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Frees what caching_allocator_alloc returned.

    Raises torch.AcceleratorError for any other address, and for one that was freed already.
    """
    _C._caching_allocator_delete(mem_ptr)


def _format_bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"


# Title, name in memory_stats, whether it is bytes, whether it is in the abbreviated table.
_SUMMARY_ROWS = (
    ("Allocated memory", "allocated_bytes", True, True),
    ("Active memory", "active_bytes", True, True),
    ("Requested memory", "requested_bytes", True, True),
    ("Reserved memory", "reserved_bytes", True, True),
    ("Non-releasable memory", "inactive_split_bytes", True, True),
    ("Allocations", "allocation", False, True),
    ("Active allocs", "active", False, True),
    ("Reserved segments", "segment", False, False),
    ("Non-releasable allocs", "inactive_split", False, False),
)


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of memory_stats for people to read.

    Args:
        device: default: the current device.
        abbreviated: only the rows that most readers want, without the two pools apart.
    """
    index = _existing_index(device)
    stats = memory_stats(index)

    def row(title: str, key: str, is_bytes: bool) -> str:
        cells = []
        for column in ("current", "peak", "allocated", "freed"):
            value = int(stats.get(f"{key}.{column}", 0))
            cells.append(f"{_format_bytes(value) if is_bytes else value:>13}")
        return f"| {title:<22}|" + "|".join(cells) + "|"

    columns = ("Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")
    refused = f"openreg OOMs: {stats.get('num_ooms', 0)}"
    flushed = f"cache flushes: {stats.get('num_alloc_retries', 0)}"
    line = "|" + "=" * 79 + "|"
    rule = "|" + "-" * 79 + "|"
    out = [
        line,
        f"| {f'openreg memory summary, device {index}':<77} |",
        rule,
        f"| {refused:<38}{flushed:<39} |",
        line,
        f"| {'Metric':<22}|" + "|".join(f"{column:>13}" for column in columns) + "|",
    ]
    for title, key, is_bytes, is_short in _SUMMARY_ROWS:
        if abbreviated and not is_short:
            continue
        out += [rule, row(title, f"{key}.all", is_bytes)]
        if not abbreviated:
            out.append(row("      from large pool", f"{key}.large_pool", is_bytes))
            out.append(row("      from small pool", f"{key}.small_pool", is_bytes))
    out.append(line)
    return "\n".join(out) + "\n"
