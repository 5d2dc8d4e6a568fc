"""Entry point for hpu-core. Importing it does not import torch or Lightning."""

from typing import Final

from hpu_core.plugins import Plugin

PLUGIN: Final = Plugin(profilers={"hpu": "hpu_profiler.profiler:HPUProfiler"})
