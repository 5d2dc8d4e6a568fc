"""Waits for Lightning, which gets its 1.x names then, and for `lightning_habana`, which may not be the real one.

Every `import torch` pays for this module where there is a card or the simulator: what it does is in others.
"""

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hpu_core.import_hooks import PostImportHook

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

# The packages of Lightning's that have the names. `hpu_core.frameworks` knows them, too, and loads more than may be
# loaded here.
ROOTS: "Final[dict[str, FrameworkName]]" = {
    "lightning.pytorch": "lightning",
    "pytorch_lightning": "pytorch_lightning",
}

_LAST: Final = "._graveyard"


def install() -> None:
    """Act on what has been imported, and from now on on what will be."""
    if refusal not in sys.meta_path:
        sys.meta_path.insert(0, refusal)
    lightning.install()


def remove() -> None:
    """Undo what was done to Lightning, and wait for nothing any more."""
    lightning.remove()
    if refusal in sys.meta_path:
        sys.meta_path.remove(refusal)
    # Imported with Lightning; without it there is nothing to undo.
    if f"{__package__}._names" in sys.modules:
        from hpu_compat import _names

        _names.restore()


def _act(module: ModuleType) -> None:
    from hpu_compat import _names

    _names.offer(module.__name__.removesuffix(_LAST))


class _Refusal:
    """Finds nothing, and is asked before others find the real `lightning-habana`."""

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: object = None) -> None:
        """Check, if it is `lightning_habana` that is looked for.

        Raises:
            ImportError: The real one is installed, too.
        """
        if fullname == "lightning_habana":
            from hpu_compat import _beside

            _beside.check()


refusal: Final = _Refusal()

# `pytorch_lightning` imports torch, and torch this, by when it is too late to wait for the package itself; `_graveyard`
# comes last in it. The packages are waited for, too, in case that a Lightning has no `_graveyard` any more.
lightning: Final = PostImportHook({*ROOTS, *(root + _LAST for root in ROOTS)}, _act)
