"""Transformer engine as a package of its own, from SynapseAI 1.19 on (simulated)."""

from habana_frameworks.torch.hpex.experimental._te_impl import Linear, fp8_autocast

from . import fp8, recipe

__all__ = ["Linear", "fp8", "fp8_autocast", "recipe"]
