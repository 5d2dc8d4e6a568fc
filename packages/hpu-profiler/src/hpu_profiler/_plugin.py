"""What hpu-core is told of this package, by the entry point `hpu_core.plugins`. Loads neither torch nor Lightning."""

from typing import Final

from hpu_core.plugins import Plugin

PLUGIN: Final = Plugin(profilers={"hpu": "hpu_profiler.profiler:HPUProfiler"})
