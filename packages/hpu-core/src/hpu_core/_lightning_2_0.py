"""Workaround for Lightning 2.0, which imports HMP wherever it sees a device.

The bridge has no `habana_frameworks.torch.hpex.hmp` from SynapseAI 1.13 on, so importing Lightning 2.0 with it fails.
"""

from types import ModuleType
from typing import Final

from hpu_core import bridge
from hpu_core.import_hooks import PostImportHook

_MODULES: Final = frozenset({"lightning.pytorch.accelerators.hpu", "pytorch_lightning.accelerators.hpu"})


def install() -> None:
    """Keep Lightning 2.0 from importing HMP where the bridge has none; later Lightnings have no such import."""
    _hook.install()


def uninstall() -> None:
    """Undo `install` for Lightnings that are not imported yet."""
    _hook.remove()


def disable_hmp_import(module: ModuleType) -> None:
    """Set `_HPU_AVAILABLE` to False where the bridge has no HMP.

    Only Lightning's own HPU classes read it, and hpu-core's classes replace them.

    Args:
        module: Lightning's `accelerators.hpu`.
    """
    if getattr(module, "_HPU_AVAILABLE", False) and bridge.hmp() is None:
        vars(module)["_HPU_AVAILABLE"] = False


_hook: Final = PostImportHook(_MODULES, disable_hmp_import)
