"""Entry point `hpu_core.plugins`: the precision plugins that hpu-core creates; imports neither torch nor Lightning."""

from typing import Final

from hpu_core.plugins import ClassPaths, Plugin

PLUGIN: Final = Plugin(
    precision=ClassPaths("hpu_precision.plugin:HPUPrecisionPlugin", "hpu_precision.fabric:FabricHPUPrecision"),
    precisions=frozenset({"fp8"}),
)
