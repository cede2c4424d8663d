"""Groups of other backends beside a default group that is bound to an openreg device.

``new_group(backend="gloo")`` asks every new group for its backend of the device that the default
group is bound to (``init_process_group(device_id=...)``). Gloo is one of CUDA's backends, so the
question has an answer there; of openreg it is none.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed.distributed_c10d as c10d


def _has_openreg(backend: str) -> bool:
    return "openreg" in c10d.BackendConfig(c10d.Backend(backend)).get_device_backend_map()


def register() -> None:
    """Binds to an openreg device only the groups that have a backend for it. Called once."""
    make = c10d._new_process_group_helper

    @functools.wraps(make)
    def make_unbound(
        group_size: int,
        group_rank: int,
        global_ranks: list[int],
        backend: str,
        *args: Any,
        **options: Any,
    ) -> Any:
        device = options.get("device_id")
        if device is not None and device.type == "openreg" and not _has_openreg(backend):
            options["device_id"] = None
        return make(group_size, group_rank, global_ranks, backend, *args, **options)

    c10d._new_process_group_helper = make_unbound  # type: ignore[assignment]
