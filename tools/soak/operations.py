"""The operations of a plan on one rank: how each is called, and what it must give.

Each function issues the operation and returns (works, checks): checks are pairs of a tensor on the
device and the tensor it must equal.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import oracle
import torch
import torch.distributed as dist
from plan import Step

Check = tuple[torch.Tensor, torch.Tensor]
Message = tuple[Callable[..., Any], torch.Tensor, int]  # isend or irecv, of what, with which tag


@dataclasses.dataclass
class Place:
    """Where a step runs: the group, and this rank in it."""

    group: Any
    members: tuple[int, ...]
    own: int  # index in the group
    device: torch.device

    @property
    def size(self) -> int:
        """How many ranks the group has."""
        return len(self.members)


class Issue:
    """One step on one rank."""

    def __init__(self, step: Step, place: Place) -> None:
        self.step = step
        self.place = place
        self.works: list[Any] = []
        self.checks: list[Check] = []
        self.held: list[torch.Tensor] = []  # inputs, until the step has been looked at
        self.to_issue: collections.deque[Message] | None = None  # of an exchange

    def run(self) -> None:
        """Issues the operation of this rank; after an error, what has not been issued yet."""
        getattr(self, "_" + self.step.kind)()

    # ---- helpers

    def _own(self, count: int, salt: int = 0) -> torch.Tensor:
        return self._on_device(oracle.contribution(self.step, self.place.own, count, salt))

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.to(self.place.device)
        self.held.append(tensor)
        return tensor

    def _empty(self, count: int) -> torch.Tensor:
        return torch.full((count,), 99, dtype=oracle.dtype_of(self.step), device=self.place.device)

    def _of(self, index: int, count: int, salt: int = 0) -> torch.Tensor:
        return oracle.contribution(self.step, index, count, salt)

    def _reduced(self, count: int, salt: int = 0) -> torch.Tensor:
        parts = [oracle.values(self.step, i, count, salt) for i in range(self.place.size)]
        return oracle.reduced(self.step, parts)

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> None:
        work = function(*args, group=self.place.group, async_op=self.step.asynchronous, **kwargs)
        if work is not None:
            self.works.append(work)

    @property
    def _op(self) -> Any:
        return getattr(dist.ReduceOp, self.step.reduction)

    @property
    def _root(self) -> int:
        return self.place.members[self.step.root]

    # ---- operations

    def _all_reduce(self) -> None:
        tensor = self._own(self.step.count)
        self._call(dist.all_reduce, tensor, self._op)
        self.checks.append((tensor, self._reduced(self.step.count)))

    def _broadcast(self) -> None:
        tensor = self._own(self.step.count)
        self._call(dist.broadcast, tensor, self._root)
        self.checks.append((tensor, self._of(self.step.root, self.step.count)))

    def _reduce(self) -> None:
        tensor = self._own(self.step.count)
        self._call(dist.reduce, tensor, self._root, self._op)
        if self.place.own == self.step.root:
            self.checks.append((tensor, self._reduced(self.step.count)))

    def _all_gather(self) -> None:
        outputs = [self._empty(self.step.count) for _ in range(self.place.size)]
        self._call(dist.all_gather, outputs, self._own(self.step.count))
        for index, output in enumerate(outputs):
            self.checks.append((output, self._of(index, self.step.count)))

    def _all_gather_into_tensor(self) -> None:
        size, count = self.place.size, self.step.count
        output = self._empty(size * count)
        self._call(dist.all_gather_into_tensor, output, self._own(count))
        self.checks.append((output, torch.cat([self._of(i, count) for i in range(size)])))

    def _reduce_scatter(self) -> None:
        output = self._empty(self.step.count)
        inputs = [self._own(self.step.count, salt) for salt in range(self.place.size)]
        self._call(dist.reduce_scatter, output, inputs, self._op)
        self.checks.append((output, self._reduced(self.step.count, self.place.own)))

    def _reduce_scatter_tensor(self) -> None:
        size, count = self.place.size, self.step.count
        output = self._empty(count)
        whole = self._on_device(
            torch.cat([self._of(self.place.own, count, salt) for salt in range(size)])
        )
        self._call(dist.reduce_scatter_tensor, output, whole, self._op)
        self.checks.append((output, self._reduced(count, self.place.own)))

    def _gather(self) -> None:
        is_root = self.place.own == self.step.root
        outputs = [self._empty(self.step.count) for _ in range(self.place.size)]
        self._call(
            dist.gather, self._own(self.step.count), outputs if is_root else None, self._root
        )
        if is_root:
            for index, output in enumerate(outputs):
                self.checks.append((output, self._of(index, self.step.count)))

    def _scatter(self) -> None:
        is_root = self.place.own == self.step.root
        output = self._empty(self.step.count)
        inputs = [self._own(self.step.count, salt) for salt in range(self.place.size)]
        self._call(dist.scatter, output, inputs if is_root else None, self._root)
        self.checks.append((output, self._of(self.step.root, self.step.count, self.place.own)))

    def _all_to_all_single(self) -> None:
        step, own, ranks = self.step, self.place.own, range(self.place.size)
        sends = [oracle.uneven(step, own, peer) for peer in ranks]
        receives = [oracle.uneven(step, peer, own) for peer in ranks]
        whole = self._on_device(torch.cat([self._of(own, n, i) for i, n in enumerate(sends)]))
        output = self._empty(sum(receives))
        self._call(dist.all_to_all_single, output, whole, receives, sends)
        expected = [self._of(i, n, own) for i, n in enumerate(receives)]
        self.checks.append((output, torch.cat(expected)))

    def _all_to_all(self) -> None:
        step, own, ranks = self.step, self.place.own, range(self.place.size)
        inputs = [self._own(oracle.uneven(step, own, peer), peer) for peer in ranks]
        outputs = [self._empty(oracle.uneven(step, peer, own)) for peer in ranks]
        self._call(dist.all_to_all, outputs, inputs)
        for index, output in enumerate(outputs):
            self.checks.append((output, self._of(index, output.numel(), own)))

    def _barrier(self) -> None:
        self._call(dist.barrier)

    def _send_recv(self) -> None:
        step, members = self.step, self.place.members
        group, tag = self.place.group, step.number % 3
        work = None
        if self.place.own == step.root:
            send = dist.isend if step.asynchronous else dist.send
            work = send(self._own(step.count), members[step.peer], group, tag)
        elif self.place.own == step.peer:
            output = self._empty(step.count)
            receive = dist.irecv if step.asynchronous else dist.recv
            work = receive(output, members[step.root], group, tag)
            self.checks.append((output, self._of(step.root, step.count)))
        if work is not None and step.asynchronous:
            self.works.append(work)

    def _exchange(self) -> None:
        step, members = self.step, self.place.members
        if self.place.own not in (step.root, step.peer):
            return
        other = step.peer if self.place.own == step.root else step.root
        if self.to_issue is None:
            self.to_issue = self._messages(other)
        while self.to_issue:
            function, tensor, tag = self.to_issue[0]
            self.works.append(function(tensor, members[other], self.place.group, tag))
            self.to_issue.popleft()

    def _messages(self, other: int) -> collections.deque[Message]:
        """Those of an exchange on this rank: the sends first, the receives first, or in turns."""
        step, order = self.step, (self.step.number + self.place.own) % 3
        numbered: list[tuple[int, Message]] = []
        checks: list[Check] = []
        for i in range(step.messages):
            count, tag = (step.count + 7 * i) % 211, i % 2
            output = self._empty(count)
            checks.append((output, self._of(other, count, i)))
            places = ((i, i), (step.messages + i, i), (i, step.messages + i))[order]
            numbered.append((places[0], (dist.isend, self._own(count, i), tag)))
            numbered.append((places[1], (dist.irecv, output, tag)))
        self.checks += checks  # not before: an error of another group may come up in between
        return collections.deque(message for _, message in sorted(numbered, key=lambda m: m[0]))

    def _ring(self) -> None:
        step, own, size = self.step, self.place.own, self.place.size
        group, members = self.place.group, self.place.members
        following, previous = (own + 1) % size, (own - 1) % size
        output = self._empty(step.count)
        operations = [
            dist.P2POp(dist.isend, self._own(step.count), members[following], group),
            dist.P2POp(dist.irecv, output, members[previous], group),
        ]
        self.works += dist.batch_isend_irecv(operations)
        self.checks.append((output, self._of(previous, step.count)))
