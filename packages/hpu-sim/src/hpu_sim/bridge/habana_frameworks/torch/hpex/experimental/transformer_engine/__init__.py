"""``te``: layers in float8."""

from habana_frameworks.torch.hpex.experimental._te_impl import Linear, fp8_autocast
from habana_frameworks.torch.hpex.experimental.transformer_engine import fp8, recipe

__all__ = ["Linear", "fp8", "fp8_autocast", "recipe"]
