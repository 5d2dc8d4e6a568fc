"""Entry point of `torch.backends`, which every `import torch` calls from torch 2.5 on.

Nothing imports this module. It imports `hpu_core` only where `_hpu_core_probe` finds a device, or together with
Lightning, because a program with neither should not pay for that.
"""

import contextlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from typing import Final

import _hpu_core_probe

_LIGHTNING: Final = frozenset({"lightning", "pytorch_lightning", "lightning_fabric"})


def autoload() -> None:
    """Call `hpu_core.registration.autoload`; without a device, wait until Lightning is imported. Never raises.

    `import torch` ends with this call. An exception would make torch unusable.
    """
    _autoload(now=not _LIGHTNING.isdisjoint(sys.modules))


def _autoload(*, now: bool) -> None:
    try:
        if not _hpu_core_probe.is_autoload_enabled():
            return
        if now or _hpu_core_probe.maybe_has_hpu():
            from hpu_core import registration

            registration.autoload()
        elif not any(isinstance(finder, _LightningFinder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _LightningFinder())
    except Exception:
        import logging

        logging.getLogger(__name__).warning("cannot register HPU with Lightning", exc_info=True)


class _LightningFinder:
    """Meta path finder that calls `hpu_core.registration.autoload` before Lightning is imported."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Return None, and for Lightning what the other finders return."""
        if fullname not in _LIGHTNING:
            return None
        # Another thread may be faster.
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        _autoload(now=True)
        # Both have changed the list that the caller iterates over.
        return importlib.util.find_spec(fullname)
