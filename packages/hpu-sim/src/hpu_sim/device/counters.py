"""Counters of the simulated device."""

from __future__ import annotations

from collections import Counter
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

# Names of what the device permits and a card does not, in `csrc/events.h`.
_LENIENCES: Final = ("complex results", "results with other strides")

_at_reset: Counter[str] = Counter()


def _counted() -> Counter[str]:
    """Return what the device has counted since the start of the process, and the memory in use."""
    tallies = native().tallies()
    counted = Counter({name: count for name, (count, _) in tallies.items()})
    for name in ("h2d", "d2h"):
        counted[f"{name}_bytes"] = tallies[f"{name}_copies"][1]
    counted["collective_bytes"] = tallies["collectives"][1]
    return counted


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
    counted, memory = _counted(), native().memory_stats()
    counted.subtract(_at_reset)
    return {name: counted[name] for name in STATS[:-2]} | _memory(memory["in_use"], memory["max_in_use"])


def _memory(in_use: int, peak: int) -> dict[str, int]:
    return {"allocated_bytes": in_use, "peak_bytes": peak}


def lifetime_stats() -> dict[str, int]:
    """Return the counters since the start of the process, regardless of resets, and ``compilations``: all cache misses.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    counted, memory = _counted(), native().memory_stats()
    # The device keeps this peak itself, because a program can also reset the peak through torch.hpu.
    return {name: counted[name] for name in (*STATS[:-2], "compilations")} | _memory(
        memory["in_use"], memory["lifetime_max_in_use"]
    )


def leniences() -> dict[str, int]:
    """Return how often this process did what strict mode refuses or changes, by name, without zeros."""
    counted = _counted()
    return {name: counted[name] for name in _LENIENCES if counted[name]}


def reset_stats() -> None:
    """Reset the counters to zero. Memory in use and the recipe cache stay, as on a card.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    _at_reset.clear()
    _at_reset.update(_counted())
    native().reset_peak_memory()
