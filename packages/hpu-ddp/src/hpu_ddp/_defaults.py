"""Defaults and validation of arguments of torch's DistributedDataParallel on Gaudi.

Intel's examples and Optimum Habana use these values throughout; they were not measured here.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from hpu_core.strategy import validate_keywords

DEFAULTS: Final[Mapping[str, Any]] = {
    # In MiB. Fewer collectives than with torch's default of 25 MiB amortize their fixed cost on the device.
    "bucket_cap_mb": 230,
    # Saves a copy of all gradients in memory and in every step.
    "gradient_as_bucket_view": True,
    # Finding unused parameters traverses the autograd graph and synchronizes with the device in every step.
    "find_unused_parameters": False,
}

_START_METHODS: Final = ("popen", "spawn", "fork", "forkserver")


def validate(start_method: object, bucket_cap_mb: object, arguments: dict[str, Any]) -> None:
    """Raise an error for arguments of a strategy that would fail later, on every rank.

    Raises:
        TypeError: DistributedDataParallel has no argument of this name.
        ValueError: A value is invalid.
    """
    from torch.nn.parallel import DistributedDataParallel

    if start_method not in _START_METHODS:
        raise ValueError(
            f"`start_method` must be {', '.join(map(repr, _START_METHODS[:-1]))} or {_START_METHODS[-1]!r}, got "
            f"{start_method!r}"
        )
    if bucket_cap_mb is not None and (not isinstance(bucket_cap_mb, (int, float)) or bucket_cap_mb <= 0):
        raise ValueError(f"`bucket_cap_mb` must be a positive number of MiB, got {bucket_cap_mb!r}")
    validate_keywords(arguments, DistributedDataParallel)


def given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that the user passed; the others are None."""
    return {name: value for name, value in arguments.items() if value is not None}


@contextmanager
def merged(strategy: Any) -> Iterator[None]:
    """Give a strategy's arguments of DistributedDataParallel the defaults inside the context, in which it wraps.

    Outside of it, the strategy has the user's arguments, as Lightning's has.

    Args:
        strategy: A subclass of Lightning's DDPStrategy.
    """
    arguments = strategy._ddp_kwargs  # noqa: SLF001 - no public attribute has them.
    strategy._ddp_kwargs = {**DEFAULTS, **arguments}  # noqa: SLF001 - see above.
    try:
        yield
    finally:
        strategy._ddp_kwargs = arguments  # noqa: SLF001 - see above.
