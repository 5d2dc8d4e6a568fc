"""The engine's recipe, by the name that programs import it by."""

from habana_frameworks.torch.hpex.experimental._engine.recipe import *  # noqa: F403 - all that is public there
