"""``PT_HPU_REPLACE_ADAM_ADAMW``: torch's Adam and AdamW give way to the bridge's, up to 1.19."""

from __future__ import annotations

import os
from typing import Final

import torch

from hpu_sim.features import features

_VARIABLE: Final = "PT_HPU_REPLACE_ADAM_ADAMW"


def replace_adam() -> None:
    """Put the bridge's Adam and AdamW into ``torch.optim``, where the variable asks for it and the release has them."""
    if features().after_1_19 or os.environ.get(_VARIABLE, "").lower() not in {"1", "true", "yes"}:
        return
    from habana_frameworks.torch.hpex import optimizers

    for name in ("Adam", "AdamW"):
        setattr(torch.optim, name, getattr(optimizers, name))
