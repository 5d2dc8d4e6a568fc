"""``te``: layers in float8.

From 1.19 on this re-exports the package ``intel_transformer_engine``, and raises ImportError if that is missing.
"""

import importlib

from hpu_sim.device.features import features

if features().from_1_19:
    importlib.import_module("intel_transformer_engine")

from habana_frameworks.torch.hpex.experimental._te_impl import Linear, fp8_autocast
from habana_frameworks.torch.hpex.experimental.transformer_engine import fp8, recipe

__all__ = ["Linear", "fp8", "fp8_autocast", "recipe"]
