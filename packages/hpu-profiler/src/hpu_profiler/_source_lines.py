"""Source lines of the user's hooks, and names of the installed packages, for the metadata of a trace."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_INSTALLED: Final = ("site-packages", "dist-packages")
_HOOK_PREFIXES: Final = ("on_", "configure_", "training_", "validation_", "test_", "predict_", "optimizer_")
_OTHER_HOOKS: Final = frozenset({"backward", "forward", "transfer_batch_to_device", "setup", "teardown"})


def hook_lines(owners: Mapping[str, Any]) -> dict[str, str]:
    """Return the source line of each hook that the user defines as "file:line function", by the name of its action."""
    lines = {}
    for prefix, owner in owners.items():
        for name in dir(type(owner)):
            if not name.startswith(_HOOK_PREFIXES) and name not in _OTHER_HOOKS:
                continue
            code = getattr(getattr(type(owner), name, None), "__code__", None)
            if code is not None and not _is_installed(code.co_filename):
                lines[f"{prefix}.{name}"] = f"{_relative(code.co_filename)}:{code.co_firstlineno} {name}"
    return lines


def installed_packages() -> list[str]:
    """Return the names of the imported top-level packages that pip installed."""
    names = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and _is_installed(file):
            names.add(name.partition(".")[0])
    return sorted(names)


def _is_installed(file: str) -> bool:
    return any(part in file for part in _INSTALLED)


def _relative(file: str) -> str:
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative
