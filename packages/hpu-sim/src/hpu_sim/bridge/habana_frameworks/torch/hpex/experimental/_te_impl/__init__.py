"""Transformer engine: linear layers that compute in float8, whose numbers are really rounded to it.

Its users know it as :mod:`habana_frameworks.torch.hpex.experimental.transformer_engine`, from 1.19 on also as the
package ``intel_transformer_engine``.
"""

from habana_frameworks.torch.hpex.experimental._te_impl import fp8, recipe
from habana_frameworks.torch.hpex.experimental._te_impl.fp8 import fp8_autocast
from habana_frameworks.torch.hpex.experimental._te_impl.linear import Linear

__all__ = ["Linear", "fp8", "fp8_autocast", "recipe"]
