"""Values of the archived package that programs import."""

import importlib.util
from typing import Any, Final, Literal

import hpu_core

AVAILABLE: Final = hpu_core.is_available()
HAS_DEEPSPEED: Final = importlib.util.find_spec("deepspeed") is not None
FABRIC_PRECISION: Any = Literal["32", "bf16", "32-true", "bf16-mixed"]
TRAINER_PRECISION: Any = Literal["32", "32-true", "bf16", "bf16-mixed", "fp8", "16-mixed"]
