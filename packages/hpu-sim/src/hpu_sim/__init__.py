"""A CPU-backed ``hpu`` device for stock torch: Gaudi code runs and is tested without a card.

The simulator is off unless asked for, and says "simulated" wherever it could be mistaken for a card. There are three
ways in::

    HPU_SIM_DEVICES=2 python train.py          # torch >= 2.5
    hpu-sim run --devices 2 train.py
    hpu_sim.activate(devices=2)                # at the top of a program

After any of them ``torch.device("hpu")``, ``torch.hpu`` and ``habana_frameworks.torch`` are there. Importing this
package does nothing else: it loads neither torch nor a compiler.

PYTEST_DONT_REWRITE: a simulated program has imported this before pytest comes to rewrite the modules of its plugins,
and pytest would warn of that. There are no assertions here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hpu_sim.__about__ import __version__

if TYPE_CHECKING:
    from hpu_sim.activation import activate
    from hpu_sim.counters import reset_stats, stats
    from hpu_sim.runtime import is_active

__all__ = ["__version__", "activate", "is_active", "reset_stats", "stats"]

_HOMES = {
    "activate": "hpu_sim.activation",
    "is_active": "hpu_sim.runtime",
    "reset_stats": "hpu_sim.counters",
    "stats": "hpu_sim.counters",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module the first time it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
