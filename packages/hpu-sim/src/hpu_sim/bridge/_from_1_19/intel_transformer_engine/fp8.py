"""Module ``intel_transformer_engine.fp8``."""

from habana_frameworks.torch.hpex.experimental._te_impl.fp8 import *  # noqa: F403 - re-export of the public names
