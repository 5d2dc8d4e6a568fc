"""Entry point of the bridge for torch >= 2.5, from SynapseAI 1.19 on."""

import importlib
import os
import sys


def __getattr__(name: str) -> bool:
    # Computed instead of set by the bridge, which would have to import this module.
    if name == "is_loaded":
        return "habana_frameworks.torch" in sys.modules
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __autoload() -> None:
    """Import the bridge, except with ``PT_HPU_AUTOLOAD=0``, or in lazy mode without ``PT_HPU_AUTOLOAD=1``."""
    autoload = os.environ.get("PT_HPU_AUTOLOAD")
    if autoload == "1" or (autoload != "0" and os.environ.get("PT_HPU_LAZY_MODE") != "1"):
        importlib.import_module("habana_frameworks.torch")
