"""DistributedDataParallel, where torch asks for CUDA by name or leaves a gap.

It allows the hooks that compress to bfloat16 for NCCL and XCCL only: here OCCL reduces bfloat16.
And its native mixed precision has three gaps, which are closed here:

- torch converts the parameters on a stream of its own at the beginning of forward, and lets that
  stream wait for nothing: neither for the optimizer step that is still writing the parameters, nor
  for the backward pass that still reads the copies of the step before, whose memory the new ones
  get. Where the host runs ahead of the device, a step is computed with the last one's parameters.
- ``Reducer::set_mixed_precision_param_dtype`` replaces the tensor of each bucket, and leaves the
  views through which gradients get there on the old one. Until the buckets are built again, after
  the first step, memory that nobody has written is reduced.
- With ``gradient_as_bucket_view`` a gradient is the bucket's view itself, and to widen it moves the
  view out of the bucket: from the third step on the gradients of the second are reduced again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import mixed_precision_hooks as hooks
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket
    from torch.futures import Future

_BFLOAT16_HOOKS = ("bf16_compress_hook", "bf16_compress_wrapper_hook")


def _fill(bucket: GradBucket) -> None:
    """Copy into `bucket` the gradients that are not there, zeros for those that are missing."""
    for part, parameter in zip(bucket.gradients(), bucket.parameters(), strict=True):
        gradient = parameter.grad
        if gradient is None:
            part.zero_()
        elif gradient.data_ptr() != part.data_ptr():
            part.copy_(gradient)


def _allow_bfloat16_hooks() -> None:
    check = DistributedDataParallel._check_comm_hook

    @functools.wraps(check)
    def check_signature(self: DistributedDataParallel, hook: Callable[..., Any]) -> None:
        name = getattr(hook, "__name__", "")
        if self.device.type == "openreg" and name in _BFLOAT16_HOOKS:
            return  # they are torch's own, and the check of the name is what is left out
        check(self, hook)  # type: ignore[no-untyped-call]

    DistributedDataParallel._check_comm_hook = check_signature  # type: ignore[method-assign]


def _close_gaps_of_mixed_precision() -> None:
    convert = DistributedDataParallel._root_copy_hook
    reduce = hooks._reducer_allreduce_and_upcast_hook

    @functools.wraps(convert)
    def convert_in_order(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        if self.device.type == "openreg":
            self._mp_stream.wait_stream(torch.accelerator.current_stream(self.device))
        convert(self, *args, **kwargs)

    @functools.wraps(reduce)
    def reduce_filled(
        hook_state: hooks._AllreduceUpcastHookState, bucket: GradBucket
    ) -> Future[torch.Tensor]:
        ddp = hook_state.ddp_weakref()
        connected = ddp._has_rebuilt_buckets and not ddp.gradient_as_bucket_view
        if ddp.device.type == "openreg" and not connected:
            _fill(bucket)
        return reduce(hook_state, bucket)  # type: ignore[no-any-return]

    DistributedDataParallel._root_copy_hook = convert_in_order  # type: ignore[method-assign]
    hooks._reducer_allreduce_and_upcast_hook = reduce_filled


def register() -> None:
    """Called once, by the registration of the backend; only models on openreg are concerned."""
    _allow_bfloat16_hooks()
    _close_gaps_of_mixed_precision()
