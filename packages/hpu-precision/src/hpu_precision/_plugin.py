"""What hpu-core is told of this package, by the entry point `hpu_core.plugins`. Loads neither torch nor Lightning."""

from typing import Final

from hpu_core.plugins import ClassPaths, Plugin

PLUGIN: Final = Plugin(
    precision=ClassPaths("hpu_precision.plugin:HPUPrecisionPlugin", "hpu_precision.fabric:FabricHPUPrecision"),
    precisions=frozenset({"fp8"}),
)
