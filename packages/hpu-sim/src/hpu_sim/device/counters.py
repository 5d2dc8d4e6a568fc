"""Counters of the simulated device."""

from __future__ import annotations

from typing import Final

from hpu_sim.device.runtime import native

#: Keys of :func:`stats`, in order.
STATS: Final = (
    "graphs",
    "recompilations",
    "host_syncs",
    "h2d_copies",
    "h2d_bytes",
    "d2h_copies",
    "d2h_bytes",
    "collectives",
    "collective_bytes",
    "allocated_bytes",
    "peak_bytes",
)

# A reset zeroes these. The two of memory are states.
_COUNTERS: Final = (*STATS[:-2], "compilations")
_totals_at_reset: dict[str, int] = {}


def stats() -> dict[str, int]:
    """Return the counters since the start of the process or the last :func:`reset_stats`.

    Returns:
        Counters by name.

        - ``graphs``: graphs run, each ended by a ``mark_step`` or a host sync (lazy mode; always 0 in eager mode)
        - ``recompilations``: recipe cache misses of a graph whose operators were compiled before in this order, with
          other arguments (lazy mode); the comment of ``csrc/recipe_key.h`` says what the key consists of
        - ``host_syncs``: host-device synchronizations: ``.item()``, ``.cpu()``, ``synchronize()``, shapes that depend
          on data
        - ``h2d_copies`` and ``h2d_bytes``: copies from host to device; ``d2h_copies`` and ``d2h_bytes``: from device
          to host
        - ``collectives`` and ``collective_bytes``: calls of torch.distributed on hpu tensors, and the bytes that this
          rank contributes
        - ``allocated_bytes`` and ``peak_bytes``: device memory in use, now and at its peak

    Raises:
        RuntimeError: If the simulator is not active.
    """
    counters = native().stats()
    return {name: counters[name] for name in STATS}


def lifetime_stats() -> dict[str, int]:
    """Return the counters since the start of the process, regardless of resets, and ``compilations``: all cache misses.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    counters = native().stats()
    totals = {name: counters[name] for name in (*STATS, "compilations")}
    totals.update({name: counters[name] + _totals_at_reset.get(name, 0) for name in _COUNTERS})
    # The device keeps this peak itself, because a program can also reset the peak through torch.hpu.
    totals["peak_bytes"] = counters["lifetime_peak_bytes"]
    return totals


def reset_stats() -> None:
    """Reset the counters to zero. Memory in use and the recipe cache stay, as on a card.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    totals = lifetime_stats()
    native().reset_stats()
    _totals_at_reset.update({name: totals[name] for name in _COUNTERS})
