"""Find the bridge for programs that import it before torch, as Gaudi code may.

Its folder comes onto the path with the device, and the device comes with torch. A program that starts with ``import
habana_frameworks.torch`` therefore has torch imported here first, which on a card the bridge itself would do.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: What the folders of the bridge hold.
NAMES: Final = frozenset({"habana_frameworks", "intel_transformer_engine", "torch_hpu"})


def wait_for_bridge() -> None:
    """Import torch, and with it the device, when the bridge is wanted and is not there yet."""
    # The last to be asked: a real bridge is found by the others.
    sys.meta_path.append(_Finder())


class _Finder(MetaPathFinder):
    """Finds the bridge once torch has brought it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a package of the bridge; None for any other, and where torch is there already."""
        del path
        # While torch is being imported the simulator itself asks, to find out whether there is a real bridge.
        if fullname not in NAMES or "torch" in sys.modules or importlib.util.find_spec("torch") is None:
            return None
        importlib.import_module("torch")
        return PathFinder.find_spec(fullname, None, target)
