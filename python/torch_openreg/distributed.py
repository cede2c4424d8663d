"""The torch.distributed backend "occl" for openreg devices."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import gc
import sys
import time
from typing import TYPE_CHECKING, cast

from torch_openreg import _C, ddp, dtensor_random, groups
from torch_openreg._C import ProcessGroupOCCL

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions
    from torch.distributed.distributed_c10d import GroupName

__all__ = ["ProcessGroupOCCL", "dump_flight_recorder", "reset_flight_recorder"]

BACKEND_NAME = "occl"
DEVICE_NAME = "openreg"

# How long the interpreter's exit waits for operations of groups that were not destroyed.
_EXIT_DRAIN = datetime.timedelta(seconds=10)
_INTERRUPT_GRACE_S = 0.2


def _create_process_group(
    backend_options: _DistributedBackendOptions,
    pg_options: ProcessGroupOCCL.Options | None,
) -> ProcessGroupOCCL:
    """Make the backend of one group, as torch's extended API asks.

    Raises:
        TypeError: pg_options are another backend's.
    """
    if pg_options is None:
        options = ProcessGroupOCCL.Options()
    elif isinstance(pg_options, ProcessGroupOCCL.Options):
        options = pg_options.clone()
    else:
        raise TypeError(
            f"backend '{BACKEND_NAME}' expects pg_options of type ProcessGroupOCCL.Options, "
            f"got {type(pg_options).__name__}"
        )
    options._timeout = backend_options.timeout
    options.group_name = cast("GroupName", backend_options.group_id)
    options.global_ranks_in_group = backend_options.global_ranks_in_group
    return ProcessGroupOCCL(
        backend_options.store,
        backend_options.group_rank,
        backend_options.group_size,
        options,
    )


def _shutdown_at_exit() -> None:
    if _C._is_in_bad_fork():
        return  # the groups are the parent's
    # After an uncaught exception (Ctrl-C among them) nobody waits, and what fails now is no news.
    error = getattr(sys, "last_value", None)
    if error is None:
        _C._shutdown_process_groups(_EXIT_DRAIN)
        return
    _C._sanitizer_disable()
    _C._log_no_failures()
    # Collecting what is left of torch's modules would take most of a second of each rank.
    gc.freeze()
    # torchrun passes an interrupt on to ranks that have had it from the terminal already.
    with contextlib.suppress(KeyboardInterrupt):
        if isinstance(error, KeyboardInterrupt):
            # The other ranks are interrupted too: let them find that out before this one's end.
            time.sleep(_INTERRUPT_GRACE_S)
    with contextlib.suppress(KeyboardInterrupt):
        _C._shutdown_process_groups(datetime.timedelta(0))


def register() -> None:
    """Register "occl" with torch.distributed, as the default backend of openreg devices.

    Called by ``import torch_openreg``; calling it again changes nothing.

    Raises:
        RuntimeError: torch refused the registration; the cause is chained.
    """
    try:
        import torch.distributed as dist

        if not dist.is_available():
            return
        if BACKEND_NAME in dist.Backend.backend_list:
            return
        dist.Backend.register_backend(
            BACKEND_NAME, _create_process_group, extended_api=True, devices=[DEVICE_NAME]
        )
        # Beside is_nccl_available and is_gloo_available.
        dist.is_occl_available = lambda: True  # type: ignore[attr-defined]
        dtensor_random.register()
        ddp.register()
        groups.register()
    except Exception as error:
        raise RuntimeError("Failed to register 'occl' process group backend.") from error
    atexit.register(_shutdown_at_exit)


def dump_flight_recorder(*, only_active: bool = False) -> bytes:
    """The last operations of all groups of this process.

    A pickle in the format that ``torch.distributed.flight_recorder`` reads: write it to a file
    named ``<prefix><global rank>``. With the environment variable TORCH_FR_DUMP_TEMP_FILE set to
    such a prefix, the first failure of each group writes the file by itself. Frames of the Python
    stack are recorded if TORCH_FR_PYTHON_STACK=1, and operations at all unless
    TORCH_FR_BUFFER_SIZE=0 (default 2000).

    Args:
        only_active: leave out operations that have ended.
    """
    return _C._dump_flight_recorder(only_active)


def reset_flight_recorder() -> None:
    """Forget the operations that have been recorded so far."""
    _C._reset_flight_recorder()
