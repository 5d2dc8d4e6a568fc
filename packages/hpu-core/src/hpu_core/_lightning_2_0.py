"""Workarounds for Lightning 2.0. Delete this module and its call sites when hpu-core requires Lightning 2.1.

- Lightning 2.0 imports HMP wherever it sees a device. The bridge has none from SynapseAI 1.13 on, so importing
  Lightning fails with it.
- Fabric's `backward` calls the precision plugin and not the strategy. Later versions call the strategy, which calls the
  plugin. Without that call, a strategy launches no graph after backward in lazy mode, and does not record that its rank
  is in a collective.
- Lightning logs a line about HPUs itself.
"""
# hpu-doctor verify: functions-from-1-13

from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hpu_core.import_hooks import PostImportHook

if TYPE_CHECKING:
    from lightning.fabric.plugins import Precision
    from lightning.fabric.strategies.strategy import Strategy
    from packaging.version import Version

_MODULES: Final = frozenset({"lightning.pytorch.accelerators.hpu", "pytorch_lightning.accelerators.hpu"})


def applies_to(version: "Version") -> bool:
    """Return whether a version of Lightning needs the workarounds."""
    return version.release < (2, 1)


def disable_hmp_import(module: ModuleType) -> None:
    """Set `_HPU_AVAILABLE` to False where the bridge has no HMP.

    Only Lightning's own HPU classes read it, and hpu-core's classes replace them.
    """
    if not getattr(module, "_HPU_AVAILABLE", False):
        return
    # Imported here: every `import torch` imports this module where there is a device.
    from hpu_core.hmp import load_hmp

    if load_hmp() is None:
        vars(module)["_HPU_AVAILABLE"] = False


def route_backward_through_strategy(strategy: "Strategy", precision: "Precision") -> None:
    """Make `precision.backward` call `strategy.backward`."""
    vars(precision)["backward"] = _Backward(strategy, precision)


class _Backward:
    """Replacement for a plugin's `backward`. It is a class so that spawning launchers can pickle it."""

    def __init__(self, strategy: "Strategy", precision: "Precision") -> None:
        self._strategy = strategy
        self._precision = precision
        self._in_strategy = False

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self._in_strategy:
            type(self._precision).backward(self._precision, *args, **kwargs)
            return
        self._in_strategy = True
        try:
            self._strategy.backward(*args, **kwargs)
        finally:
            self._in_strategy = False


hmp_hook: Final = PostImportHook(_MODULES, disable_hmp_import)
"""Stops Lightning 2.0 from importing the removed `hmp`, once installed; later versions have no such import."""
