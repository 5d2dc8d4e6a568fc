"""Arguments that the Trainer's and Fabric's strategies share."""

from typing import Final

# In MiB. Fewer collectives than with torch's default of 25 MiB amortize their fixed cost on the device. Intel's
# examples and Optimum Habana use this and the strategies' other defaults; they were not measured here.
BUCKET_CAP_MB: Final = 230

_START_METHODS: Final = ("popen", "spawn", "fork", "forkserver")


def check(start_method: object, bucket_cap_mb: object) -> None:
    """Raise a ValueError if the start method or the size of the buckets is invalid, before every rank does."""
    if start_method not in _START_METHODS:
        names = ", ".join(map(repr, _START_METHODS[:-1]))
        raise ValueError(f"`start_method` must be {names} or {_START_METHODS[-1]!r}, got {start_method!r}")
    if not isinstance(bucket_cap_mb, (int, float)) or bucket_cap_mb <= 0:
        raise ValueError(f"`bucket_cap_mb` must be a positive number of MiB, got {bucket_cap_mb!r}")
