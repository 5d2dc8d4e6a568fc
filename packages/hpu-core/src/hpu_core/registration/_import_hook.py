"""Post-import hook on the modules of Lightning that define the replaced names.

It must target the defining modules: other modules import the names from there.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hpu_core.import_hooks import PostImportHook

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

# Spelled out, because `hpu_core.frameworks` takes too long to import at `import torch`.
_TARGETS: "Final[dict[str, FrameworkName]]" = {
    "lightning.pytorch.trainer.connectors.accelerator_connector": "lightning",
    "lightning.pytorch.trainer.setup": "lightning",
    "lightning.pytorch.callbacks.throughput_monitor": "lightning",
    "lightning.pytorch.cli": "lightning",
    "lightning.pytorch.plugins.io.async_plugin": "lightning",
    "lightning.pytorch.utilities.memory": "lightning",
    "lightning.fabric.cli": "lightning",
    "lightning.fabric.connector": "lightning",
    "lightning.fabric.utilities.throughput": "lightning",
    "pytorch_lightning.trainer.connectors.accelerator_connector": "pytorch_lightning",
    "pytorch_lightning.trainer.setup": "pytorch_lightning",
    "pytorch_lightning.callbacks.throughput_monitor": "pytorch_lightning",
    "pytorch_lightning.cli": "pytorch_lightning",
    "pytorch_lightning.plugins.io.async_plugin": "pytorch_lightning",
    "pytorch_lightning.utilities.memory": "pytorch_lightning",
    "lightning_fabric.cli": "pytorch_lightning",
    "lightning_fabric.connector": "pytorch_lightning",
    "lightning_fabric.utilities.throughput": "pytorch_lightning",
}


def install() -> None:
    """Patch the modules that are imported, and each of the others when it is."""
    from hpu_core import _lightning_2_0

    uninstall_hints()
    _lightning_2_0.install()
    _hook.install()


def uninstall() -> None:
    """Stop patching and restore the patched modules."""
    from hpu_core import _lightning_2_0

    _hook.remove()
    _lightning_2_0.uninstall()
    _unpatch()


def install_hints() -> None:
    """Extend the errors of Lightning's connectors for names of Gaudi, see `_hints`; nothing if `install` was called."""
    if not _hook.is_installed:
        _hints_hook.install()


def uninstall_hints() -> None:
    """Undo `install_hints`."""
    if _hints_hook.is_installed:
        _hints_hook.remove()
        _unpatch()


def _unpatch() -> None:
    # The first patched module imports it.
    if f"{__package__}._patch" in sys.modules:
        from hpu_core.registration import _patch

        _patch.unpatch()


def _add_hints(module: ModuleType) -> None:
    from hpu_core.registration import _patch

    _patch.patch_hints(module, _TARGETS[module.__name__])


def _on_import(module: ModuleType) -> None:
    # Lightning is imported by now, so these imports add little.
    framework = _TARGETS[module.__name__]
    if module.__name__.endswith("fabric.cli"):
        from hpu_core.registration import _fabric_cli

        _fabric_cli.extend_options(module, framework)
    elif module.__name__.endswith(".cli"):
        from hpu_core.registration import _cli

        _cli.load_classes(framework)
        return
    from hpu_core.registration import _patch

    _patch.patch(module, framework)


_hook: Final = PostImportHook(_TARGETS, _on_import)
_hints_hook: Final = PostImportHook([name for name in _TARGETS if name.endswith("connector")], _add_hints)
