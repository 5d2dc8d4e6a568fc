"""What torch >= 2.5 is told to call at its import, from SynapseAI 1.19 on."""

import importlib
import os
import sys


def __getattr__(name: str) -> bool:
    # Computed, because the bridge would have to import this module to set it.
    if name == "is_loaded":
        return "habana_frameworks.torch" in sys.modules
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __autoload() -> None:
    """Import the bridge, unless ``PT_HPU_AUTOLOAD=0`` or lazy mode, which loads it at the program's own import."""
    wanted = os.environ.get("PT_HPU_AUTOLOAD")
    if wanted == "1" or (wanted != "0" and os.environ.get("PT_HPU_LAZY_MODE") != "1"):
        importlib.import_module("habana_frameworks.torch")
