"""Transformer engine as its own package, which SynapseAI has had since 1.19 (simulated)."""

from habana_frameworks.torch.hpex.experimental._te_impl import Linear, fp8_autocast

from . import fp8, recipe

__all__ = ["Linear", "fp8", "fp8_autocast", "recipe"]
