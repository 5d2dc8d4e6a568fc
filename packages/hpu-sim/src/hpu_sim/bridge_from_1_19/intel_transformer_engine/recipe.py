"""The engine's recipe."""

from habana_frameworks.torch.hpex.experimental._engine.recipe import *  # noqa: F403 - all that is public there
