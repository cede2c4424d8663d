"""Groups with other backends besides OCCL.

``new_group(backend="gloo")`` asks every new group for its backend of the device that the default
group is bound to (``init_process_group(device_id=...)``). Gloo is one of CUDA's backends, so the
question has an answer there; of openreg it is none.

A group of several backends ("cpu:gloo,openreg:occl") gets NCCL as the default one where it has it.
For a plug-in torch compares its name in capitals with the one in the group, so there is none, and
``destroy_process_group`` warns of that on every rank.

``shrink_group`` registers what is not CUDA's as Gloo, and DistributedDataParallel's logger then
reads the fields of torch's ``ProcessGroupGloo`` where there is another object.

Gloo's ranks wait for each other where a group is made, for minutes where one of them has died. OCCL
knows of that before, so it is asked.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from torch_openreg._C import ProcessGroupOCCL


def _has_openreg(backend: str) -> bool:
    return "openreg" in c10d.BackendConfig(c10d.Backend(backend)).get_device_backend_map()


def _names_occl_among_others(backend: str) -> bool:
    return "," in backend and any(part.endswith(":occl") for part in backend.split(","))


def _refuse_the_dead(global_ranks: list[int], backend: str) -> None:
    """Raise DistBackendError where another backend would wait for a rank that has died."""
    names = set(c10d.BackendConfig(c10d.Backend(backend)).get_device_backend_map().values())
    detail = c10d.get_debug_level() == c10d.DebugLevel.DETAIL  # that puts a group of Gloo around
    if not global_ranks or (names == {"occl"} and not detail):
        return
    world = c10d._get_default_group()
    if world.rank() not in global_ranks or "openreg" not in {d.type for d in world._device_types}:
        return
    occl = world._get_backend(torch.device("openreg"))
    occl = getattr(occl, "wrapped_pg", occl)
    dead = occl._find_dead(global_ranks) if isinstance(occl, ProcessGroupOCCL) else ""
    if dead:
        raise dist.DistBackendError(
            f"new_group of the ranks {global_ranks} on rank {world.rank()}: {dead}, and backend "
            f"'{backend}' would wait for it"
        )


def _make_shrunk(backend: ProcessGroupOCCL, group: dict[str, Any], is_default: bool) -> Any:
    """The group of `backend`, of which shrink_group says the rest in `group`."""
    device = group.get("bound_device_id")
    custom = c10d.ProcessGroup.BackendType.CUSTOM
    store = c10d.PrefixStore(f"{group['new_group_name']}/", group["store"].clone())
    made = c10d.ProcessGroup(store, backend.rank(), backend.size())
    made._register_backend(device or torch.device("openreg"), custom, backend)
    made._set_default_backend(custom)
    if device is not None:
        made.bound_device_id = device
    made._set_group_name(group["new_group_name"])
    made._set_group_desc(
        "default:shrunken" if is_default else f"{group['original_group_name']}:shrunk"
    )
    if group.get("backend_config") is not None:
        c10d._world.pg_backend_config[made] = group["backend_config"]
    return made


def _register_shrunk_as_custom() -> None:
    make = c10d._create_shrunk_process_group

    @functools.wraps(make)
    def make_custom(
        new_backend: Any,
        remaining_ranks: list[int],
        metadata: dict[str, Any],
        is_default_group: bool,
    ) -> Any:
        if isinstance(new_backend, ProcessGroupOCCL):
            return _make_shrunk(new_backend, metadata, is_default_group)
        return make(new_backend, remaining_ranks, metadata, is_default_group)

    c10d._create_shrunk_process_group = make_custom


def register() -> None:
    """Lets torch make such groups as it makes those with NCCL. Called once."""
    _register_shrunk_as_custom()
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
        _refuse_the_dead(global_ranks, backend)
        made = make(group_size, group_rank, global_ranks, backend, *args, **options)
        if isinstance(made[0], c10d.ProcessGroup) and _names_occl_among_others(backend):
            made[0]._set_default_backend(c10d.ProcessGroup.BackendType.CUSTOM)
        return made

    c10d._new_process_group_helper = make_unbound  # type: ignore[assignment]
