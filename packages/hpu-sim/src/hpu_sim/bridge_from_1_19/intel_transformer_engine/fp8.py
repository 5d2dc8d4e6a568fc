"""The engine's fp8."""

from habana_frameworks.torch.hpex.experimental._engine.fp8 import *  # noqa: F403 - all that is public there
