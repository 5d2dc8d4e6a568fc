"""Module ``intel_transformer_engine.recipe``."""

from habana_frameworks.torch.hpex.experimental._te_impl.recipe import *  # noqa: F403 - re-export of the public names
