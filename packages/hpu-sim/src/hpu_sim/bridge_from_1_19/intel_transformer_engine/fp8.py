"""The engine's fp8."""

from habana_frameworks.torch.hpex.experimental._te_impl.fp8 import *  # noqa: F403 - all that is public there
