"""Streams, events, and which stream is current."""

import ctypes
from types import TracebackType
from typing import Any

import torch

from torch_openreg import _C
from torch_openreg.openreg.devices import Device, _device_index, _lazy_init


class Event(torch.Event):
    """A point in the work of a stream that can be waited for, and timed.

    It captures the work queued at :meth:`record`; whoever waits for it waits for that, even if it
    is recorded again meanwhile. Never recorded, it is complete.

    Args:
        enable_timing: the event takes time (:meth:`elapsed_time`). Default False.
        blocking: :meth:`synchronize` sleeps at once instead of spinning a little. Default False.
        interprocess: the event can be shared (:meth:`ipc_handle`); not together with
            `enable_timing` (torch.AcceleratorError). Default False.
    """

    _timing: bool

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> "Event":
        """See the class."""
        event = super().__new__(cls, "openreg", enable_timing=enable_timing)
        event._timing = enable_timing
        if blocking or interprocess:
            _lazy_init()
            flags = 0 if enable_timing else _C._EVENT_DISABLE_TIMING
            flags |= _C._EVENT_BLOCKING if blocking else 0
            flags |= _C._EVENT_INTERPROCESS if interprocess else 0
            _C._prepare_event(_C._get_device(), flags)
            torch.Event.record(event, current_stream())  # adopts it, records nothing
        return event

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> "Event":
        """The event of another process whose :meth:`ipc_handle` gave `handle`.

        Raises torch.AcceleratorError if it is no event handle or its owner has ended.
        """
        _lazy_init()
        event = super().__new__(cls, "openreg", enable_timing=False)
        event._timing = False
        stream = current_stream(device)
        _C._prepare_ipc_event(handle)
        torch.Event.record(event, stream)  # adopts it, records nothing
        return event

    def ipc_handle(self) -> bytes:
        """A handle for :meth:`from_ipc_handle` in another process. Needs ``interprocess=True``."""
        if self.event_id == 0:
            raise ValueError("only an event made with interprocess=True has an IPC handle")
        return _C._event_ipc_handle(self.event_id)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Captures the work queued on `stream` (default: the current one) now."""
        super().record(current_stream() if stream is None else stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Makes work queued on `stream` (default: the current one) from now on wait for it."""
        super().wait(current_stream() if stream is None else stream)

    def query(self) -> bool:
        """True if all captured work has run."""
        return super().query()

    def synchronize(self) -> None:
        """Blocks the host until all captured work has run."""
        super().synchronize()

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds from this event to `end_event`, both recorded with timing and complete.

        Raises ValueError if one was not recorded or has no timing, RuntimeError if one is not
        complete, torch.AcceleratorError if they are of two devices.
        """
        # Not torch's own: it takes events of exactly its own class.
        for event in (self, end_event):
            if not getattr(event, "_timing", True):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if event.event_id == 0:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            if not event.query():
                raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return _C._event_elapsed_time(self.event_id, end_event.event_id)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.event_id)

    def __repr__(self) -> str:
        if self.event_id:
            return f"<torch.openreg.Event {self.event_id:#x}>"
        return "<torch.openreg.Event uninitialized>"


class Stream(torch.Stream):
    """A queue of work that runs in order, beside the work of other streams.

    Streams come from a pool of 32 for each device and priority, as CUDA's do, and are never
    destroyed.

    Args:
        device: where the work runs. Default: the current device.
        priority: lower numbers run first (:meth:`priority_range`); others are clamped. Default 0.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> "Stream":
        """See the class."""
        if kwargs:  # the triple stream_id, device_index, device_type of an existing stream
            return super().__new__(cls, **kwargs)
        _lazy_init()
        index = _C._resolve_device(_device_index(device))
        return super().__new__(cls, torch.device("openreg", index), priority=priority)

    def wait_event(self, event: torch.Event) -> None:
        """Work queued on this stream from now on waits for what `event` captured."""
        super().wait_event(event)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Work queued on this stream from now on waits for what is queued on `stream` now."""
        super().wait_stream(stream)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records `event` (default: a new :class:`Event`) on this stream, and returns it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """True if all queued work has run."""
        return super().query()

    def synchronize(self) -> None:
        """Blocks the host until all work queued now has run. Raises what it left behind."""
        super().synchronize()

    @property
    def openreg_stream(self) -> int:
        """The runtime's handle (orStream_t), for :class:`ExternalStream` and C code."""
        return _C._stream_handle(self)

    @property
    def priority(self) -> int:
        """The priority; lower numbers run first."""
        return _C._stream_priority(self)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority."""
        return _C._stream_priority_range()

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.openreg_stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.Stream) and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()  # equal to that of the same stream as a torch.Stream

    def __repr__(self) -> str:
        return f"<torch.openreg.Stream device={self.device} id={self.stream_id}>"


_C._register_stream_class(Stream)


class ExternalStream(Stream):
    """A stream that other code made (orStreamCreate); its maker keeps it alive and destroys it.

    Args:
        stream_ptr: the orStream_t as an integer.
        device: the device it must belong to. Default: the one it belongs to.

    Raises torch.AcceleratorError for a handle that is none or was destroyed, ValueError for a
    stream of another device.
    """

    def __new__(cls, stream_ptr: int, device: Device = None) -> "ExternalStream":
        """See the class."""
        _lazy_init()
        stream = _C._external_stream(stream_ptr)
        if device is not None and _device_index(device) != stream.device_index:
            raise ValueError(
                f"expected a stream of {torch.device('openreg', _device_index(device))}, got one "
                f"of {stream.device}"
            )
        return super().__new__(
            cls,
            stream_id=stream.stream_id,
            device_index=stream.device_index,
            device_type=stream.device_type,
        )  # type: ignore[return-value]


class StreamContext:
    """Makes a stream and its device current for the calling thread; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[tuple[int, torch.Stream]] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            before = _C._get_device()
            self._previous.append((before, _C._current_stream(self.stream.device_index)))
            _C._set_stream(self.stream)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            before, stream = self._previous.pop()
            _C._set_stream(stream)
            _C._set_device(before)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: `stream` and its device are current inside."""
    return StreamContext(stream)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` and its device current for the calling thread. None is a no-op."""
    if stream is not None:
        _lazy_init()
        _C._set_stream(stream)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    set_stream(
        torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )


def current_stream(device: Device = None) -> Stream:
    """The calling thread's current stream on `device`."""
    _lazy_init()
    return _C._current_stream(-1 if device is None else _device_index(device))


def default_stream(device: Device = None) -> Stream:
    """The stream that `device`'s work goes to unless another is chosen."""
    _lazy_init()
    return _C._default_stream(-1 if device is None else _device_index(device))


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """As :class:`ExternalStream`."""
    return ExternalStream(data_ptr, device)


def is_current_stream_capturing() -> bool:
    """False: openreg has no graphs to capture into."""
    return False
