"""Values of the archived package that programs import."""

import importlib.util
from typing import Any, Final, Literal

import hpu_core

HAS_DEEPSPEED: Final = importlib.util.find_spec("deepspeed") is not None
FABRIC_PRECISION: Any = Literal["32", "bf16", "32-true", "bf16-mixed"]
TRAINER_PRECISION: Any = Literal["32", "32-true", "bf16", "bf16-mixed", "fp8", "16-mixed"]


def __getattr__(name: str) -> bool:
    # Looked up when it is asked for: it looks for cards, and an import must not.
    if name == "AVAILABLE":
        return hpu_core.is_available()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
