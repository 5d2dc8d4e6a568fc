"""Random numbers of the device. A process has one device, and one generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch.hpu._utils import init
from hpu_sim.device.runtime import native

from . import _philox  # Relative, for type checkers.

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

default_generators = [native().default_generator()]


def _check_device(device: Any, caller: str) -> None:
    index: int | None = device if isinstance(device, int) else torch.device(device).index
    if index is None:
        # "hpu" without an index is the current device, and the bridge acquires it.
        init()
    elif index != 0:
        raise RuntimeError(f"hpu {caller} supports only device 0")


def get_rng_state(device: Any = "hpu") -> torch.Tensor:
    """Return the generator's state, a uint8 tensor on the CPU; in a philox context 16 bytes on the device."""
    _check_device(device, "get_rng_state")
    if _philox.is_active():
        return _philox.get_state(default_generators[0])
    return default_generators[0].get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "hpu") -> None:
    """Set the generator to a state of :func:`get_rng_state`."""
    _check_device(device, "set_rng_state")
    if _philox.is_active():
        _philox.set_state(default_generators[0], new_state)
        return
    default_generators[0].set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return a list with the generator's state."""
    return [get_rng_state(0)]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the generator to the state in a list of one."""
    states = list(new_states)
    if len(states) != 1:
        raise RuntimeError("hpu set_rng_state_all supports only states len of 1")
    set_rng_state(states[0], 0)


def manual_seed(seed: int) -> torch.Generator:
    """Seed the generator and return it, without acquiring a device."""
    return default_generators[0].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generator, without acquiring a device."""
    manual_seed(seed)


def seed() -> int:
    """Seed the generator with a random number and return the seed."""
    return default_generators[0].seed()


def seed_all() -> None:
    """Seed the generator with a random number."""
    seed()


def initial_seed() -> int:
    """Return the latest seed of the generator."""
    return default_generators[0].initial_seed()
