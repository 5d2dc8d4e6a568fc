"""What a strategy is told, checked, and what it does when it is told nothing."""

from datetime import timedelta
from typing import Final

import torch.distributed as dist

# The values that Intel's examples and Optimum Habana use throughout (facts of the vendor's; not measured here).
# Few large collectives: each has a cost of its own on the card, which a bucket of torch's 25 MB does not hide.
BUCKET_CAP_MB: Final = 230
# Gradients lie in the buckets themselves, which spares a copy of all gradients in memory and in time per step.
GRADIENT_AS_BUCKET_VIEW: Final = True
# Looking for parameters without a gradient walks the whole graph in every step and waits for the card.
FIND_UNUSED_PARAMETERS: Final = False

BACKEND: Final = "hccl"
TIMEOUT: Final = timedelta(minutes=30)  # As in Lightning and torch.

# Those of torch's own backends, none of which works on a card.
_OF_TORCH: Final = frozenset({"gloo", "mpi", "nccl", "ucc"})


def checked_backend(name: str | None) -> str:
    """Return the process group backend; "hccl" when none is given.

    Raises:
        ValueError: torch does not know it, or it does not work on a card.
    """
    if name is None:
        return BACKEND
    # The bridge registers "hccl", and may not be loaded yet.
    if name != BACKEND and not works_on_cards(name):
        raise ValueError(
            f"`process_group_backend` must be 'hccl', or a backend that was registered for 'hpu' before, got {name!r}: "
            "leave it out"
        )
    return name


def works_on_cards(backend: str) -> bool:
    """Tell whether torch knows a process group backend that takes tensors on HPUs by this name."""
    capabilities: dict[str, list[str]] | None = getattr(dist.Backend, "backend_capability", None)
    if capabilities is not None:
        return "hpu" in capabilities.get(backend, ())
    # Torch 2.0 knows which backends there are, and not what for: one that was registered may work.
    return backend not in _OF_TORCH and hasattr(dist.Backend, backend.upper())


def checked_timeout(timeout: timedelta | None) -> timedelta:
    """Return for how long ranks wait for each other; 30 minutes when no time is given.

    Raises:
        TypeError: It is no timedelta.
        ValueError: It is no time to wait.
    """
    if timeout is None:
        return TIMEOUT
    if not isinstance(timeout, timedelta):
        raise TypeError(f"`timeout` must be a datetime.timedelta, got {timeout!r}")
    if timeout <= timedelta(0):
        raise ValueError(f"`timeout` must be more than 0 seconds, got {timeout.total_seconds():g} s")
    return timeout
