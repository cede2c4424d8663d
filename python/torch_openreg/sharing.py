"""torch.multiprocessing for openreg tensors: shared between processes without a copy.

The storage is sent as an IPC handle of its block. From the moment of sending the owner keeps the
block, even if it drops its tensors: first for the message (a reference that the receiver takes
over, through multiprocessing's resource sharer), then for as long as the receiver has the storage.
The receiver's current stream waits for what was queued on the storage's device when it was sent.
Both see each other's writes; what is written after sending needs synchronisation of its own, as
with CUDA. A receiver's storage cannot be sent on: only its owner can share it.
"""

import contextlib
import threading
from collections.abc import Callable
from multiprocessing import resource_sharer
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing
from torch.multiprocessing import reductions

from torch_openreg import _C
from torch_openreg.openreg.streams import Event

# How long the owner waits for a receiver that has asked for a storage to open it.
_TAKE_OVER_TIMEOUT_S = 60.0

_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]
_Handle = tuple[bytes, int, int, int]

# One at a time: two tensors of one storage go on sharing one here (torch's cache of received ones).
_opening = threading.Lock()


def _received(shared: _Handle) -> torch.UntypedStorage | None:
    storage: torch.UntypedStorage | None = reductions.storage_from_cache(  # type: ignore[no-untyped-call]
        torch.UntypedStorage, shared
    )
    return storage


def _note_received(shared: _Handle, storage: torch.UntypedStorage) -> None:
    reductions.shared_cache[shared] = reductions.StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _reduce_storage(storage: torch.UntypedStorage) -> _Reduced:
    if storage.device.type != "openreg":
        reduced: _Reduced = reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
        return reduced
    shared = _C._share_storage(storage)
    if not shared[0]:
        return _rebuild_storage, (None, shared, None)
    captured = _C._capture_device(shared[3])
    in_transit = [storage, captured]

    def send(connection: Connection, pid: int) -> None:
        # The receiver says when it holds the block itself; if it dies, the connection ends.
        connection.send(True)
        if connection.poll(_TAKE_OVER_TIMEOUT_S):
            with contextlib.suppress(EOFError):
                connection.recv()

    def close() -> None:
        in_transit.clear()

    sharer = resource_sharer._resource_sharer  # type: ignore[attr-defined]
    event = None if captured is None else captured.handle
    return _rebuild_storage, (sharer.register(send, close), shared, event)


def _rebuild_storage(ticket: Any, shared: _Handle, event: bytes | None) -> torch.UntypedStorage:
    if ticket is None:
        return _C._open_storage(*shared)
    sharer = resource_sharer._resource_sharer  # type: ignore[attr-defined]
    try:
        connection = sharer.get_connection(ticket)
        with connection:
            connection.recv()
            if event is not None:
                _C._wait_for_captured(event, shared[3])
            with _opening:
                storage = _received(shared)
                if storage is None:
                    storage = _C._open_storage(*shared)
                    _note_received(shared, storage)
            connection.send(True)
            return storage
    except (OSError, EOFError) as error:
        raise RuntimeError(
            "an openreg tensor sent by another process cannot be opened: its owner has ended, or "
            "the message was already received once (each is received exactly once)"
        ) from error


def _reduce_event(event: Event) -> _Reduced:
    return Event.from_ipc_handle, (event.device, event.ipc_handle())


def register() -> None:
    """Teaches torch.multiprocessing to send openreg storages and interprocess events.

    Storages of other devices go on as before.
    """
    ForkingPickler.register(Event, _reduce_event)
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
