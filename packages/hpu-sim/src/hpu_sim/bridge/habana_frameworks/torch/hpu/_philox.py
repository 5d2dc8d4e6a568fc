"""Philox states of random numbers, a seed and an offset, which torch's distributed tensors use.

A card has a philox generator, which can jump to any offset. The simulated generator is the CPU's mt19937, reseeded for
each pair of seed and offset: equal offsets give equal numbers.
"""
# hpu-doctor verify: functions-from-1-20

from __future__ import annotations

from typing import Final

import torch

_NAME: Final = "philox"
# The golden gamma of SplitMix64, which gives unrelated seeds to neighboring offsets.
_GOLDEN_GAMMA: Final = 0x9E3779B97F4A7C15
_UINT64_RANGE: Final = 1 << 64

_active = False
# Seed given to the generator, and the philox seed and offset that it stands for.
_current = (-1, 0, 0)


def is_active() -> bool:
    """Return whether states of the generator are philox states."""
    return _active


def set_rng_ctx(ctx: str) -> None:
    """Use philox states until :func:`unset_rng_ctx`.

    Raises:
        ValueError: If ``ctx`` is not ``"philox"``.
    """
    _set_active(ctx, active=True)


def unset_rng_ctx(ctx: str) -> None:
    """Use states of the generator itself again.

    Raises:
        ValueError: If ``ctx`` is not ``"philox"``.
    """
    _set_active(ctx, active=False)


def _set_active(ctx: str, *, active: bool) -> None:
    global _active  # noqa: PLW0603 - one generator per process
    if ctx != _NAME:
        raise ValueError(f"`ctx` must be {_NAME!r}, got {ctx!r}")
    _active = active


def get_state(generator: torch.Generator) -> torch.Tensor:
    """Return the philox state: 16 bytes on the device, the seed as uint64 and the offset as int64."""
    generator_seed, seed, offset = _current
    if generator.initial_seed() != generator_seed:
        # The program has seeded the generator since.
        seed, offset = generator.initial_seed(), 0
    words = [seed - _UINT64_RANGE if seed >= _UINT64_RANGE // 2 else seed, offset]
    return torch.tensor(words, dtype=torch.int64).view(torch.uint8).to("hpu")


def set_state(generator: torch.Generator, state: torch.Tensor) -> None:
    """Set the generator to a philox state, which may be on the CPU."""
    global _current  # noqa: PLW0603 - one generator per process
    signed_seed, offset = (int(value) for value in state.cpu().view(torch.int64))
    seed = signed_seed % _UINT64_RANGE
    generator_seed = (seed + offset * _GOLDEN_GAMMA) % _UINT64_RANGE
    generator.manual_seed(generator_seed)
    _current = (generator_seed, seed, offset)
