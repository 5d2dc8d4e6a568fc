"""Precision "fp8" for plugins of engines with casts of their own, such as FSDP and DeepSpeed.

The installed precision plugin (`Plugin.precision`) converts the layers and computes in them.
"""

from typing import TYPE_CHECKING, Any

from hpu_core import plugins

if TYPE_CHECKING:
    import torch

    from hpu_core.plugins import Api


class FP8PrecisionMixin:
    """Mixin for precision plugins; list it first.

    Attributes:
        fp8_plugin: Installed precision plugin; None with another precision.
    """

    precision: Any
    fp8_plugin: Any = None

    def convert_modules(self, module: "torch.nn.Module", **options: Any) -> "torch.nn.Module":
        """Return a module in fp8, before it is sharded; see `HPUPrecisionPlugin.convert_modules` of hpu-precision.

        Raises:
            ValueError: The plugin's precision is not "fp8", or an option is invalid.
        """
        if self.fp8_plugin is None:
            raise ValueError(f"`convert_modules` needs precision='fp8', got a plugin with {self.precision!r}")
        converted: torch.nn.Module = self.fp8_plugin.convert_modules(module, **options)
        return converted


def installed_precision(precision: str, api: "Api") -> Any | None:
    """Return the precision plugin of an installed distribution; None if there is none.

    Raises:
        ModuleNotFoundError: The precision is "fp8", and no distribution has it.
    """
    for plugin in plugins.installed().values():
        path = plugin.precision.of(api) if plugin.precision else None
        if path is not None:
            return plugins.load(path)(precision)
    if precision == "fp8":
        raise plugins.not_installed_error(f"`precision={precision!r}` on Gaudi", "hpu-precision")
    return None
