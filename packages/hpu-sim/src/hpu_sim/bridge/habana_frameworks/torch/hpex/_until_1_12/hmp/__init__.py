"""Habana mixed precision (HMP): mixed precision before autocast, in SynapseAI releases up to 1.12.

It replaces functions of torch for good. Use ``torch.autocast("hpu")``, which the bridge has had since 1.11.
"""

import warnings

from habana_frameworks.torch.hpex.hmp.conversion import convert
from habana_frameworks.torch.hpex.hmp.policy import disable_casts

__all__ = ["convert", "disable_casts"]

warnings.warn(
    "HMP is deprecated and will be removed in SynapseAI 1.13.0; use torch.autocast", DeprecationWarning, stacklevel=2
)
