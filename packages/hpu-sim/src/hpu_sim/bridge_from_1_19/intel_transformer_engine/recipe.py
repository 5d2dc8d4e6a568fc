"""The engine's recipe."""

from habana_frameworks.torch.hpex.experimental._te_impl.recipe import *  # noqa: F403 - all that is public there
