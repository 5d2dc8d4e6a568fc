"""Random numbers by seed and offset, which torch's distributed tensors ask an hpu device for.

A card has a philox generator for them, of which every number can be reached by its offset. The simulated generator is
the CPU's mt19937: within a context it is seeded anew for every offset, so that equal offsets give equal numbers.
"""

from __future__ import annotations

from typing import Final

import torch

_NAME: Final = "philox"
# An odd number without a pattern, so that neighbouring offsets give seeds that have nothing to do with each other.
_SPREAD: Final = 0x9E3779B97F4A7C15
_WORD: Final = 1 << 64

_active = False
# The seed that the generator was given for a seed and an offset, and those two.
_placed = (-1, 0, 0)


def is_active() -> bool:
    """Return whether the state of the generator is a seed and an offset at present."""
    return _active


def set_rng_ctx(ctx: str) -> None:
    """Let states be a seed and an offset until :func:`unset_rng_ctx`.

    Raises:
        ValueError: If ``ctx`` is not ``"philox"``.
    """
    _switch(ctx, active=True)


def unset_rng_ctx(ctx: str) -> None:
    """Let states be the generator's own again.

    Raises:
        ValueError: If ``ctx`` is not ``"philox"``.
    """
    _switch(ctx, active=False)


def _switch(ctx: str, *, active: bool) -> None:
    global _active  # noqa: PLW0603 - one generator per process
    if ctx != _NAME:
        raise ValueError(f"`ctx` must be {_NAME!r}, got {ctx!r}")
    _active = active


def state_of(generator: torch.Generator) -> torch.Tensor:
    """Return 16 bytes on the card: the seed as uint64 and the offset as int64."""
    given, seed, offset = _placed
    if generator.initial_seed() != given:
        # Seeded by the program since: a new sequence, at its start.
        seed, offset = generator.initial_seed(), 0
    words = [seed - _WORD if seed >= _WORD // 2 else seed, offset]
    return torch.tensor(words, dtype=torch.int64).view(torch.uint8).to("hpu")


def set_state(generator: torch.Generator, state: torch.Tensor) -> None:
    """Go to the seed and the offset of a state of :func:`state_of`, which may lie on the CPU."""
    global _placed  # noqa: PLW0603 - one generator per process
    word, offset = (int(value) for value in state.cpu().view(torch.int64))
    seed = word % _WORD
    mixed = (seed + offset * _SPREAD) % _WORD
    generator.manual_seed(mixed)
    _placed = (mixed, seed, offset)
