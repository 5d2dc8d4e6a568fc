"""Import hooks for Lightning, to restore its 1.x names, and for `lightning_habana`, to detect a conflict.

On machines with an HPU or the simulator, every `import torch` imports this module. It imports the others when needed.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hpu_compat import _conflict
from hpu_core.import_hooks import PostImportHook

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

# Lightning's packages that have the names. Importing `hpu_core.frameworks` for them would take too long here.
_ROOTS: "Final[dict[str, FrameworkName]]" = {
    "lightning.pytorch": "lightning",
    "pytorch_lightning": "pytorch_lightning",
}

# The last module that Lightning imports, private to it.
_LAST_MODULE: Final = "._graveyard"


def install() -> None:
    """Install both hooks and patch a Lightning that is already imported."""
    _conflict.finder.install()
    lightning.install()


def remove() -> None:
    """Remove both hooks and restore Lightning's modules."""
    lightning.remove()
    _conflict.finder.remove()
    # If the module was never imported, Lightning was never patched.
    if f"{__package__}._legacy_names" in sys.modules:
        from hpu_compat import _legacy_names

        _legacy_names.unpatch()


def _patch(module: ModuleType) -> None:
    from hpu_compat import _legacy_names

    root = module.__name__.removesuffix(_LAST_MODULE)
    _legacy_names.patch(root, _ROOTS[root])


# `pytorch_lightning` imports torch, which installs this hook when the import of the package itself has already started.
# Its last module is still to come. The packages are listed for a Lightning without that module.
lightning: Final = PostImportHook({*_ROOTS, *(root + _LAST_MODULE for root in _ROOTS)}, _patch)
