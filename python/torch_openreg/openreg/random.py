"""Random numbers: one generator for each device, Philox with a seed and an offset, as CUDA's.

A state is a ByteTensor of 16 bytes on the CPU: the seed and the offset, little-endian 64 bits each.
The numbers drawn depend on it alone, not on the number of threads. Seeding does not bring a device
to life.
"""

from collections.abc import Iterable

import torch

from torch_openreg import _C
from torch_openreg.openreg.devices import Device, _device_index, device_count


def _get_generator(device: Device = None) -> torch.Generator:
    return _C._default_generator(_device_index(device))


def get_rng_state(device: Device = "openreg") -> torch.Tensor:
    """The state of `device`'s generator: 16 bytes, uint8, on the CPU."""
    return _get_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = "openreg") -> None:
    """Sets the state of `device`'s generator (16 bytes, or 8: the seed alone, offset 0).

    Raises TypeError unless it is a ByteTensor on the CPU, RuntimeError for another size.
    """
    _get_generator(device).set_state(new_state.contiguous())


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _get_rng_state_offset(device: Device = "openreg") -> int:
    return int(_get_generator(device).get_offset())


def _set_rng_state_offset(offset: int, device: Device = "openreg") -> None:
    _get_generator(device).set_offset(offset)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator, offset 0."""
    _get_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds all devices' generators."""
    for index in range(device_count()):
        _get_generator(index).manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device's generator with a random number."""
    _get_generator().seed()


def seed_all() -> None:
    """Seeds all devices' generators with one random number."""
    if device_count() > 0:
        manual_seed_all(_get_generator(0).seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _get_generator().initial_seed()
