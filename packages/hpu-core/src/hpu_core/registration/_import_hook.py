"""Post-import hook on the modules of Lightning that define the replaced names.

It must target the defining modules: other modules import the names from there.
"""

from types import ModuleType
from typing import Final

from hpu_core.import_hooks import PostImportHook

_PYTORCH: Final = (
    "plugins.io.async_plugin",
    "trainer.connectors.accelerator_connector",
    "trainer.setup",
    "utilities.memory",
)
_FABRIC: Final = ("connector", "utilities.seed")

# Spelled out, because `hpu_core.frameworks` takes too long to import at `import torch`.
_TARGETS: Final = {
    *(f"{package}.{module}" for package in ("lightning.pytorch", "pytorch_lightning") for module in _PYTORCH),
    *(f"{package}.{module}" for package in ("lightning.fabric", "lightning_fabric") for module in _FABRIC),
    "torchmetrics.metric",
}


def install() -> None:
    """Patch the modules that are imported, and each of the others when it is."""
    from hpu_core import _lightning_2_0

    _lightning_2_0.hmp_hook.install()
    _hook.install()


def uninstall() -> None:
    """Stop patching and restore the patched modules."""
    from hpu_core import _lightning_2_0
    from hpu_core.registration import _patch

    _hook.remove()
    _lightning_2_0.hmp_hook.remove()
    _patch.undo.close()


# Lightning is imported by the time that this is called, so its imports add little.
def _patch(module: ModuleType) -> None:
    from hpu_core.registration import _replacements

    _replacements.patch(module)


_hook: Final = PostImportHook(_TARGETS, _patch)
