"""Counters of what a program made the simulated card do."""

from __future__ import annotations

from typing import Final

from hpu_sim.runtime import native

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

# Counts, which a reset sets to 0; the others are states.
_COUNTS: Final = (*STATS[:-2], "compilations")
_counted_before_resets: dict[str, int] = {}


def stats() -> dict[str, int]:
    """Return what the simulated card has seen since the process began or :func:`reset_stats` was called.

    Returns:
        Counts by name.

        - ``graphs``: graphs run, each ended by a ``mark_step`` or a host sync (lazy mode; always 0 in eager mode)
        - ``recompilations``: graphs whose operators had been compiled before in this order, with other shapes or
          dtypes (lazy mode)
        - ``host_syncs``: times the host waited for the device: ``.item()``, ``.cpu()``, ``synchronize()``, shapes that
          depend on data
        - ``h2d_copies`` and ``h2d_bytes``: copies from host to device; ``d2h_copies`` and ``d2h_bytes``: from device
          to host
        - ``collectives`` and ``collective_bytes``: calls of torch.distributed on hpu tensors, and the bytes this rank
          put in
        - ``allocated_bytes`` and ``peak_bytes``: device memory in use now, and at most

    Raises:
        RuntimeError: If the simulator is not active.
    """
    counted = native().stats()
    return {name: counted[name] for name in STATS}


def lifetime_stats() -> dict[str, int]:
    """Return what the simulated card has seen since the process began, whatever was reset in between.

    Returns:
        As :func:`stats`, with ``compilations`` (graphs never seen before, whatever the reason) at the end.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    counted = native().stats()
    before = _counted_before_resets
    totals = {name: counted[name] for name in (*STATS, "compilations")}
    totals.update({name: counted[name] + before.get(name, 0) for name in _COUNTS})
    # The device's own, because a program resets the peak by torch.hpu, too.
    totals["peak_bytes"] = counted["lifetime_peak_bytes"]
    return totals


def reset_stats() -> None:
    """Start counting anew. Memory in use and graphs already compiled stay, as they do on a card.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    totals = lifetime_stats()
    native().reset_stats()
    _counted_before_resets.update({name: totals[name] for name in _COUNTS})
