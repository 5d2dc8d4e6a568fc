"""Transformer engine: linear layers that compute with numbers rounded to float8.

Programs import it as ``habana_frameworks.torch.hpex.experimental.transformer_engine``.
"""

from habana_frameworks.torch.hpex.experimental._te_impl import fp8, recipe
from habana_frameworks.torch.hpex.experimental._te_impl.fp8 import fp8_autocast
from habana_frameworks.torch.hpex.experimental._te_impl.linear import Linear

__all__ = ["Linear", "fp8", "fp8_autocast", "recipe"]
