"""Import hook that imports torch before the bridge.

The folder of the bridge joins ``sys.path`` when torch brings the device. A program that starts with ``import
habana_frameworks.torch`` therefore needs torch imported first. On a card the bridge itself imports torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpu_sim.common.post_import import WrappedLoader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: Top-level packages of the bridge.
BRIDGE_PACKAGES: Final = frozenset({"habana_dataloader", "habana_frameworks"})

#: Folder of the simulated bridge, which joins ``sys.path`` when the device is up.
BRIDGE_FOLDER: Final = Path(__file__).parents[1] / "bridge"


def is_installed() -> bool:
    """Return whether :func:`import_torch_before_bridge` was called."""
    return any(isinstance(finder, _BridgeFinder) for finder in sys.meta_path)


def import_torch_before_bridge() -> None:
    """Import torch, and with it the device, when a program imports the bridge first."""
    # Last, so that a real bridge is found by the other finders.
    sys.meta_path.append(_BridgeFinder())


class _BridgeLoader(WrappedLoader):
    """Wrapper of the loader of ``habana_frameworks`` that imports torch, and with it the device, first."""

    def exec_module(self, module: ModuleType) -> None:
        """Import torch, then execute the module."""
        importlib.import_module("torch")
        super().exec_module(module)


class _BridgeFinder(MetaPathFinder):
    """Finder of the bridge for a program that has not imported torch yet."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a package of the bridge; None for any other package, or if torch is imported already."""
        del path
        # During the import of torch the simulator itself searches for a real bridge.
        if fullname not in BRIDGE_PACKAGES or "torch" in sys.modules or importlib.util.find_spec("torch") is None:
            return None
        if fullname != "habana_frameworks":
            importlib.import_module("torch")
            return PathFinder.find_spec(fullname, None, target)
        # Programs such as Ray's daemons only ask whether the bridge is installed, which must not take seconds.
        spec = PathFinder.find_spec(fullname, [str(BRIDGE_FOLDER)], target)
        if spec is not None and spec.loader is not None:
            spec.loader = _BridgeLoader(spec.loader)
        return spec
