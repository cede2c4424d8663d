"""The backends that are compared, and the operations by which they are."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

OPS = (
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "sendrecv",
    "barrier",
)
DIVIDED = ("all_gather", "reduce_scatter", "all_to_all")
DTYPES = {
    "float32": torch.float32,
    "f32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def bus_factor(op: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines them."""
    others = (ranks - 1) / ranks
    if op == "all_reduce":
        return 2 * others
    return others if op in DIVIDED else 1.0


@dataclasses.dataclass
class Contender:
    """A backend with the device of its tensors."""

    name: str
    modules: tuple[str, ...] = ()
    device: str = "cpu"
    label: str = ""
    env: dict[str, str] = dataclasses.field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Contender:
        """NAME[,import=M+M2][,device=D][,label=L][,env=K:V+K2:V2]."""
        name, *settings = text.split(",")
        result = Contender(name, label=name)
        for setting in settings:
            key, _, value = setting.partition("=")
            if key == "import":
                result.modules = tuple(filter(None, value.split("+")))
            elif key in ("device", "label"):
                setattr(result, key, value)
            elif key == "env":
                pairs = (pair.partition(":") for pair in value.split("+"))
                result.env = {k: v for k, _, v in pairs}
            else:
                raise argparse.ArgumentTypeError(
                    f"contender {text!r}: {key!r} is none of import, device, label, env"
                )
        return result


class Runner:
    """A contender's process group and buffers on this rank."""

    def __init__(self, contender: Contender, rank: int, world_size: int, timeout: Any):
        self.contender = contender
        self.rank, self.world_size = rank, world_size
        for module in contender.modules:
            importlib.import_module(module)
        self.device = torch.device(contender.device)
        self.synchronize: Callable[[], None] = lambda: None
        if contender.device != "cpu":
            module = torch.get_device_module(contender.device)
            self.device = torch.device(contender.device, rank % module.device_count())
            module.set_device(self.device)
            self.synchronize = module.synchronize
        self.group = dist.new_group(backend=contender.name, timeout=timeout)
        self.buffers: list[tuple[torch.Tensor, torch.Tensor]] = []

    def allocate(self, elements: int, dtype: torch.dtype, rotate: int) -> None:
        """`rotate` pairs of send and receive buffers; calls take them in turn."""
        self.buffers = [
            (
                torch.zeros(elements, dtype=dtype).to(self.device),
                torch.zeros(elements, dtype=dtype).to(self.device),
            )
            for _ in range(rotate)
        ]

    def views(self, op: str, elements: int, i: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """The parts of the i-th pair that a call with `elements` in all uses."""
        send, receive = self.buffers[i % len(self.buffers)]
        part = elements // self.world_size
        return (
            send[: part if op == "all_gather" else elements],
            receive[: part if op == "reduce_scatter" else elements],
        )

    def issue(
        self, op: str, send: torch.Tensor, receive: torch.Tensor, async_op: bool
    ) -> dist.Work | None:
        """One call; a whole ping-pong of ranks 0 and 1 for sendrecv."""
        group = self.group
        if op == "all_reduce":
            return dist.all_reduce(receive, group=group, async_op=async_op)
        if op == "broadcast":
            return dist.broadcast(receive, 0, group=group, async_op=async_op)
        if op == "all_gather":
            return dist.all_gather_single(receive, send, group=group, async_op=async_op)
        if op == "reduce_scatter":
            return dist.reduce_scatter_single(receive, send, group=group, async_op=async_op)
        if op == "all_to_all":
            return dist.all_to_all_single(receive, send, group=group, async_op=async_op)
        if op == "barrier":
            return dist.barrier(group=group, async_op=async_op)
        if self.rank == 0:
            dist.send(send, 1, group=group)
            dist.recv(receive, 1, group=group)
        elif self.rank == 1:
            dist.recv(receive, 0, group=group)
            dist.send(send, 0, group=group)
        return None

    def repeat(self, op: str, elements: int, calls: int, inflight: int) -> None:
        """`calls` calls, `inflight` of them at a time, then waits for the device."""
        pairs = [self.views(op, elements, i) for i in range(len(self.buffers))]
        if inflight == 1:
            for i in range(calls):
                self.issue(op, *pairs[i % len(pairs)], False)
        else:
            for start in range(0, calls, inflight):
                indices = range(start, min(calls, start + inflight))
                works = [self.issue(op, *pairs[i % len(pairs)], True) for i in indices]
                for work in works:
                    if work is not None:
                        work.wait()
        self.synchronize()

    def refresh(self, op: str, elements: int) -> None:
        """Rewrites what the next call uses, as a producer would."""
        for tensor in self.views(op, elements):
            tensor.zero_()
        self.synchronize()

    def is_right(self, op: str, elements: int) -> bool:
        """One call on values whose result is known."""
        n, rank, part = self.world_size, self.rank, elements // self.world_size
        send, receive = self.views(op, elements)
        if op == "barrier":
            self.issue(op, send, receive, False)
            return True
        send.fill_(rank + 1.0)
        receive.fill_(rank + 1.0)
        if op in ("reduce_scatter", "all_to_all"):
            for i in range(n):
                value = (rank + 1.0) * (i + 1) if op == "reduce_scatter" else rank * 8.0 + i
                send[i * part : (i + 1) * part].fill_(value)
        self.issue(op, send, receive, False)
        self.synchronize()
        total = n * (n + 1) / 2
        wanted = {
            "all_reduce": [total],
            "broadcast": [1.0],
            "all_gather": [i + 1.0 for i in range(n)],
            "reduce_scatter": [total * (rank + 1)],
            "all_to_all": [i * 8.0 + rank for i in range(n)],
            "sendrecv": [2.0 - rank if rank < 2 else rank + 1.0],
        }[op]
        found = receive.cpu().float().view(len(wanted), -1)
        return bool((found == torch.tensor(wanted)[:, None]).all())


def pin(rank: int) -> None:
    """Keeps this process on one CPU."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
