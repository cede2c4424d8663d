"""Random operators on DTensors give the numbers that one device gives, whatever the placements.

torch's tracker moves each shard's generator to an offset of its own: on CUDA that makes shards
differ and replicas equal, but not the numbers those of a single device. Here every rank draws the
whole tensor and keeps its part, so that a model that is initialised or trained with dropout in
parallel can be compared with one that is not. The ranks of a mesh are seeded alike, as torch asks.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor._random import OffsetBasedRNGTracker

_MODULE = "torch.distributed.tensor._random"
_aten = torch.ops.aten
_IN_PLACE = (_aten.normal_.default, _aten.uniform_.default, _aten.bernoulli_.float)
_FROM_SIZE = (_aten.rand.default, _aten.randn.default)
_LIKE = (
    _aten.rand_like.default,
    _aten.randn_like.default,
    _aten.randint_like.default,
    _aten.randint_like.low_dtype,
)


class _DrawWhole(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Random operators on a local tensor draw the tensor of which it is a part.

    Args:
        spec: of the whole tensor.
        generator: what to draw from; None: the device's.
        otherwise: the region in which any other operator runs.
    """

    def __init__(
        self,
        spec: DTensorSpec,
        generator: torch.Generator | None,
        otherwise: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._spec = spec
        self._generator = generator
        self._otherwise = otherwise

    def _part(self, whole: torch.Tensor) -> torch.Tensor:
        from torch.distributed.tensor import distribute_tensor

        spec = self._spec
        # Without a source rank nothing is sent: each rank takes its part of its own tensor.
        part = distribute_tensor(whole, spec.mesh, spec.placements, src_data_rank=None)
        return part.to_local()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        shape = self._spec.shape
        if func in _IN_PLACE:
            whole = args[0].new_empty(shape)
            func(whole, *args[1:], **{**kwargs, "generator": self._generator})
            return args[0].copy_(self._part(whole))
        if self._generator is None:
            if func in _FROM_SIZE:
                return self._part(func(shape, **kwargs)).contiguous()
            if func in _LIKE:
                return self._part(func(args[0].new_empty(shape), *args[1:], **kwargs)).contiguous()
            if func is _aten.native_dropout.default and args[2] and 0 < args[1] < 1:
                whole = args[0].new_ones(shape)
                scaled, mask = (self._part(one) for one in func(whole, *args[1:]))
                return args[0] * scaled, mask
        with self._otherwise():
            return func(*args, **kwargs)


def _install(module: Any) -> None:
    tracker: type[OffsetBasedRNGTracker] = module.OffsetBasedRNGTracker
    of_torch = tracker._distribute_region

    @contextlib.contextmanager
    def distribute_region(
        self: OffsetBasedRNGTracker,
        spec: DTensorSpec,
        generator: torch.Generator | None = None,
    ) -> Iterator[None]:
        def otherwise() -> contextlib.AbstractContextManager[None]:
            return of_torch(self, spec, generator)

        whole = self._device.type == "openreg" and self.distribute_region_enabled
        with _DrawWhole(spec, generator, otherwise) if whole else otherwise():
            yield

    tracker._distribute_region = distribute_region  # type: ignore[method-assign]


class _WhenImported(importlib.abc.MetaPathFinder):
    """Importing torch_openreg must not import DTensor, which costs half a second."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_install(module: ModuleType) -> None:
                execute(module)
                _install(module)

            spec.loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec


def register() -> None:
    """Takes effect when DTensor is imported, or at once if it has been."""
    if _MODULE in sys.modules:
        _install(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _WhenImported())
