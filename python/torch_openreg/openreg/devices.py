"""Devices: which there are, which is current, and what they are."""

import atexit
import sys
from types import TracebackType
from typing import TypeAlias

import torch

from torch_openreg import _C

Device: TypeAlias = torch.device | str | int | None

# At interpreter exit, work in flight gets this long to finish; then the process ends anyway.
_EXIT_TIMEOUT_MS = 10_000


def _finish_at_exit() -> None:
    # After an uncaught exception (Ctrl-C among them) nobody waits.
    failed = getattr(sys, "last_value", None) is not None
    _C._drain(0 if failed else _EXIT_TIMEOUT_MS)


atexit.register(_finish_at_exit)


def _device_index(device: Device, allow_cpu: bool = False) -> int:
    """The index that `device` stands for; the current one for None or a device without an index.

    Raises ValueError for a device of another type, TypeError for anything that is no device. With
    `allow_cpu` a CPU device is -1. Does not check that the index exists.
    """
    if device is None:
        return _C._get_device()
    if isinstance(device, bool) or not isinstance(device, (int, str, torch.device)):
        raise TypeError(
            f"expected a device of openreg (index, string or torch.device), got {device!r}"
        )
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if allow_cpu and device.type == "cpu":
        return -1
    if device.type != "openreg":
        raise ValueError(f"expected a device of openreg, got {device}")
    return _C._get_device() if device.index is None else device.index


def is_available() -> bool:
    """True if there is a device to use. Brings nothing to life, never raises."""
    return device_count() > 0


def device_count() -> int:
    """The number of devices: OPENREG_DEVICE_COUNT, 8 by default. Brings nothing to life."""
    return _C._device_count()


def is_initialized() -> bool:
    """True once this process has used the device, and is no forked child of one that had."""
    return _C._is_initialized() and not _is_in_bad_fork()


def init() -> None:
    """Brings the device to life now; otherwise its first use does.

    Raises RuntimeError in a forked child of a process that had used the device, and
    torch.AcceleratorError if the machine's limits leave no room for its memory.
    """
    _lazy_init()


def _is_in_bad_fork() -> bool:
    return _C._is_in_bad_fork()


def _lazy_init() -> None:
    if _C._is_initialized():
        return
    if _is_in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize openreg in forked subprocess. To use openreg with "
            "multiprocessing, you must use the 'spawn' start method"
        )
    _C._init()


def current_device() -> int:
    """The calling thread's current device (an index, 0 if it never chose one)."""
    _lazy_init()
    return _C._get_device()


def set_device(device: Device) -> None:
    """Makes `device` current for the calling thread. A negative index is a no-op.

    Raises torch.AcceleratorError for an index that does not exist.
    """
    index = _device_index(device)
    if index >= 0:
        _lazy_init()
        _C._set_device(index)


def _exchange_device(device: int) -> int:
    return -1 if device < 0 else _C._exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    return _exchange_device(device)


class device:  # noqa: N801, named as torch.cuda.device
    """Context manager: makes a device current, and the one before it on leaving.

    Args:
        device: index, string or torch.device; a negative index or None changes nothing.
    """

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else _device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            _lazy_init()
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801, named as torch.cuda.device_of
    """Context manager: makes the device of a tensor or storage current, if it is an openreg one."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.device.index if obj.device.type == "openreg" else -1)


def synchronize(device: Device = None) -> None:
    """Blocks until all work queued on all streams of `device` has run.

    The interpreter lock is released meanwhile, and Ctrl-C ends the wait. Raises what asynchronous
    work left behind.
    """
    _lazy_init()
    _C._synchronize(_device_index(device))


def get_device_properties(device: Device = None) -> _C._DeviceProperties:
    """Name, memory (bytes), capability and more of `device`."""
    _lazy_init()
    return _C._get_device_properties(_device_index(device))


def get_device_name(device: Device = None) -> str:
    """The name of `device`."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Major and minor compute capability of `device`."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """Empty: kernels are compiled for the host's CPU and choose its instructions at run time."""
    return []


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """True if `device` reads and writes `peer_device`'s memory: all devices of a process do.

    Raises torch.AcceleratorError for an index that does not exist.
    """
    _lazy_init()
    return _C._can_device_access_peer(_device_index(device), _device_index(peer_device))


def ipc_collect() -> None:
    """Frees memory that was sent to other processes and that none of them uses any more."""
    _C._ipc_collect()
