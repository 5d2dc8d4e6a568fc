"""CPU-backed ``hpu`` device for stock torch, to run and test Gaudi code without a card.

The simulator is off by default, and everything that could be mistaken for a card says "simulated". There are three ways
to activate it::

    HPU_SIM_DEVICES=2 python train.py
    hpu-sim run --devices 2 train.py
    hpu_sim.activate(devices=2)                # at the top of a program

Each of them provides ``torch.device("hpu")``, ``torch.hpu`` and ``habana_frameworks.torch``. Importing this package has
no side effects and does not import torch.

PYTEST_DONT_REWRITE: a simulated program imports this package before pytest rewrites the modules of its plugins, and
pytest would warn about that. It has no assertions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hpu_sim.__about__ import __version__

if TYPE_CHECKING:
    from hpu_sim.device.counters import reset_stats, stats
    from hpu_sim.device.runtime import is_active
    from hpu_sim.process.activation import activate

__all__ = ["__version__", "activate", "is_active", "reset_stats", "stats"]

_NAME_TO_MODULE = {
    "activate": "hpu_sim.process.activation",
    "is_active": "hpu_sim.device.runtime",
    "reset_stats": "hpu_sim.device.counters",
    "stats": "hpu_sim.device.counters",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first access."""
    if name not in _NAME_TO_MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_NAME_TO_MODULE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
