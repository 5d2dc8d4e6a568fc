"""Entry point of ``torch.backends``: torch >= 2.5 calls it at the end of ``import torch``."""

from __future__ import annotations

import os
import sys
from typing import Final

# Variables that the import of the bridge sets to one endpoint for all jobs of a machine.
_RENDEZVOUS: Final = ("MASTER_ADDR", "MASTER_PORT")


def autoload() -> None:
    """Activate the simulator if ``HPU_SIM_DEVICES`` is set.

    Raises:
        ValueError: If ``HPU_SIM_DEVICES`` or a related variable has an invalid value.
        RuntimeError: If the extension cannot be built, or a real bridge is installed. The import of torch fails then,
            because a program that asked for hpu tensors must not run without them.
    """
    # Before any import of this package: every `import torch` pays for it.
    if not os.environ.get("HPU_SIM_DEVICES"):
        return
    from hpu_sim.common import post_import

    # torch wraps errors of its entry points. The hook calls this again once torch has executed, outside of that.
    if post_import.is_loading("torch"):
        return
    from hpu_sim.process.activation import activate_from_environment

    unset = [] if _imports_bridge() else [name for name in _RENDEZVOUS if name not in os.environ]
    activate_from_environment()
    for name in unset:
        os.environ.pop(name, None)


def _imports_bridge() -> bool:
    """Return whether the import of torch imports the bridge on a card: torch < 2.5 needs a call of the program."""
    # A program that imports the bridge first is about to execute it.
    return hasattr(sys.modules["torch"], "_import_device_backends") or "habana_frameworks" in sys.modules
