"""Habana mixed precision (HMP), in SynapseAI releases up to 1.12.

It patches functions of torch permanently. ``torch.autocast("hpu")`` replaces it, from 1.11 on.
"""

import warnings

from habana_frameworks.torch.hpex.hmp.conversion import convert
from habana_frameworks.torch.hpex.hmp.policy import disable_casts

__all__ = ["convert", "disable_casts"]

warnings.warn(
    "HMP is deprecated and will be removed in SynapseAI 1.13.0; use torch.autocast", DeprecationWarning, stacklevel=2
)
