"""Arguments of the strategies, and of the DistributedDataParallel that Lightning wraps modules in."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

# Intel's examples and Optimum Habana use these values throughout; they were not measured here.
DEFAULTS: Final[Mapping[str, Any]] = {
    # In MiB. Fewer collectives than with torch's default of 25 MiB amortize their fixed cost on the device.
    "bucket_cap_mb": 230,
    # Saves a copy of all gradients in memory and in every step; the README has what it costs the few programs that keep
    # gradients by reference.
    "gradient_as_bucket_view": True,
    # Finding unused parameters traverses the autograd graph and synchronizes with the device in every step.
    "find_unused_parameters": False,
}

_START_METHODS: Final = ("popen", "spawn", "fork", "forkserver")


def check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a strategy without those of `DEFAULTS` that are None.

    Raises:
        ValueError: The start method or the size of the buckets is invalid.
    """
    start_method, bucket_cap_mb = arguments["start_method"], arguments["bucket_cap_mb"]
    if start_method not in _START_METHODS:
        raise ValueError(
            f"`start_method` must be {', '.join(map(repr, _START_METHODS[:-1]))} or {_START_METHODS[-1]!r}, got "
            f"{start_method!r}"
        )
    if bucket_cap_mb is not None and (not isinstance(bucket_cap_mb, (int, float)) or bucket_cap_mb <= 0):
        raise ValueError(f"`bucket_cap_mb` must be a positive number of MiB, got {bucket_cap_mb!r}")
    return {name: value for name, value in arguments.items() if name not in DEFAULTS or value is not None}


@contextmanager
def with_defaults(strategy: Any) -> Iterator[None]:
    """Give the arguments of DistributedDataParallel their defaults inside the context, in which Lightning wraps.

    Outside of it, the strategy has the user's arguments, as Lightning's has.
    """
    arguments, strategy._ddp_kwargs = strategy._ddp_kwargs, {**DEFAULTS, **strategy._ddp_kwargs}  # noqa: SLF001 - no public attribute has them.
    try:
        yield
    finally:
        strategy._ddp_kwargs = arguments  # noqa: SLF001 - as above.


def check_trains(strategy: Any) -> None:
    """Raise a RuntimeError if this process launches the ranks and does not train."""
    start_method, cluster = strategy._start_method, strategy.cluster_environment  # noqa: SLF001 - Lightning's.
    if start_method != "popen" and cluster is not None and not cluster.creates_processes_externally:
        raise RuntimeError(
            f"this process launches the ranks (start_method={start_method!r}) and has no device of its own: "
            "create the module in `configure_model`, or in the function that Fabric launches"
        )
