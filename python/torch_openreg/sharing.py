"""torch.multiprocessing for openreg tensors: shared between processes without a copy.

The storage is sent as an IPC handle of its block. From the moment of sending the owner keeps the
block, even if it drops its tensors: first for the message (a reference that the receiver takes
over, through multiprocessing's resource sharer), then for as long as the receiver has the storage.
Both see each other's writes; what is written after sending needs synchronisation of its own, as
with CUDA. A receiver's storage cannot be sent on: only its owner can share it.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable
from multiprocessing import resource_sharer
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing
from torch.multiprocessing.reductions import reduce_storage

from torch_openreg import _C

# How long the owner waits for a receiver that has asked for a storage to open it.
_TAKE_OVER_TIMEOUT_S = 60.0

_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]
_Handle = tuple[bytes, int, int, int]

# Storages that this process has received, so that two tensors of one storage go on sharing one.
_received: "weakref.WeakValueDictionary[_Handle, torch.UntypedStorage]" = (
    weakref.WeakValueDictionary()
)
_received_lock = threading.Lock()


def _reduce_storage(storage: torch.UntypedStorage) -> _Reduced:
    if storage.device.type != "openreg":
        reduced: _Reduced = reduce_storage(storage)  # type: ignore[no-untyped-call]
        return reduced
    shared = _C._share_storage(storage)
    if not shared[0]:
        return _rebuild_storage, (None, shared)
    in_transit = [storage]

    def send(connection: Connection, pid: int) -> None:
        # The receiver says when it holds the block itself; if it dies, the connection ends.
        connection.send(True)
        if connection.poll(_TAKE_OVER_TIMEOUT_S):
            with contextlib.suppress(EOFError):
                connection.recv()

    def close() -> None:
        in_transit.clear()

    sharer = resource_sharer._resource_sharer  # type: ignore[attr-defined]
    return _rebuild_storage, (sharer.register(send, close), shared)


def _rebuild_storage(ticket: Any, shared: _Handle) -> torch.UntypedStorage:
    if ticket is None:
        return _C._open_storage(*shared)
    sharer = resource_sharer._resource_sharer  # type: ignore[attr-defined]
    try:
        connection = sharer.get_connection(ticket)
        with connection:
            connection.recv()
            with _received_lock:
                storage = _received.get(shared)
                if storage is None:
                    storage = _C._open_storage(*shared)
                    _received[shared] = storage
            connection.send(True)
            return storage
    except (OSError, EOFError) as error:
        raise RuntimeError(
            "an openreg tensor sent by another process cannot be opened: its owner has ended, or "
            "the message was already received once (each is received exactly once)"
        ) from error


def register() -> None:
    """Teaches torch.multiprocessing to send openreg storages. Other devices go on as before."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
