"""Defaults and validation of arguments of torch's DistributedDataParallel on Gaudi.

Intel's examples and Optimum Habana use these values throughout; they were not measured here.
"""

from typing import Any, Final

from hpu_core.strategy import validate_keywords

# In MiB. Fewer collectives than with torch's default of 25 MiB amortize their fixed cost on the device.
BUCKET_CAP_MB: Final = 230
# Saves a copy of all gradients in memory and in every step.
GRADIENT_AS_BUCKET_VIEW: Final = True
# Finding unused parameters traverses the autograd graph and synchronizes with the device in every step.
FIND_UNUSED_PARAMETERS: Final = False

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
    if not isinstance(bucket_cap_mb, (int, float)) or bucket_cap_mb <= 0:
        raise ValueError(f"`bucket_cap_mb` must be a positive number of MiB, got {bucket_cap_mb!r}")
    validate_keywords(arguments, DistributedDataParallel)
