"""What torch does for CUDA alone: refused here with a sentence, not with an error about a name.

- ``torch.compile``'s default backend, inductor, generates code for the devices that it knows.
- ``torch.nn.DataParallel`` needs functions that only torch's CUDA build has: scatter, gather and
  broadcast over the devices of one process.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


def _is_of_openreg(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_is_of_openreg(part) for part in value)
    return isinstance(value, torch.Tensor) and value.device.type == "openreg"


def _refuse_inductor() -> None:
    wrapper = torch._TorchCompileInductorWrapper
    compile_graph = wrapper.__call__

    @functools.wraps(compile_graph)
    def call(self: Any, model_: torch.fx.GraphModule, inputs_: Any, **options: Any) -> Any:
        if any(_is_of_openreg(node.meta.get("example_value")) for node in model_.graph.nodes):
            raise NotImplementedError(
                "inductor, torch.compile's default backend, has no code generator for openreg: "
                'use torch.compile(..., backend="aot_eager")'
            )
        return compile_graph(self, model_, inputs_, **options)  # type: ignore[no-untyped-call]

    wrapper.__call__ = call  # type: ignore[method-assign]


def _refuse_data_parallel() -> None:
    init = torch.nn.DataParallel.__init__

    @functools.wraps(init)
    def initialize(self: torch.nn.DataParallel[Any], *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        device = getattr(self, "src_device_obj", None)  # None: torch found no accelerator
        if device is not None and device.type == "openreg":
            raise NotImplementedError(
                "torch.nn.DataParallel needs functions that only torch's CUDA build has: use "
                "torch.nn.parallel.DistributedDataParallel with a process for each device"
            )

    torch.nn.DataParallel.__init__ = initialize  # type: ignore[method-assign]


def register() -> None:
    """Make torch refuse both for tensors of openreg; nothing changes for other devices."""
    _refuse_inductor()
    _refuse_data_parallel()
