"""The engine's recipe, by the name that programs import it by."""

from habana_frameworks.torch.hpex.experimental._te_impl.recipe import *  # noqa: F403 - all that is public there
