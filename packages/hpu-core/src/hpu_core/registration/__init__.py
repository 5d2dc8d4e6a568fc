"""Registration of Gaudi with Lightning: `Trainer(accelerator="hpu")` with nothing imported but Lightning.

Lightning's registries are not enough: current releases reject `accelerator="hpu"`, choose a CPU strategy for an
HPUAccelerator, and take precision plugins from CUDA. Two private classes decide that, `_AcceleratorConnector` of the
Trainer and `_Connector` of Fabric. A post-import hook replaces each with a subclass that handles HPU and delegates
everything else. It modifies no class of Lightning, and `unregister` restores the originals.

Only this package uses those private names. A connector without the expected methods is left in place and a warning is
logged.

Importing this package imports neither torch nor Lightning.
"""

import logging
import os
from typing import Final

from hpu_core.registration import _import_hook

AUTOLOAD: Final = "HPU_CORE_AUTOLOAD"
"""Environment variable that disables implicit registration when it is "0"."""


def autoload() -> None:
    """Call `register_if_enabled`, and log its errors: an exception would make torch unusable.

    Runs on `import hpu_core`, and at the end of `import torch` from torch 2.5 on (entry point `torch.backends`). A
    machine without a card registers, too: `accelerator="hpu"` then fails with an error that says what to run.
    """
    try:
        register_if_enabled()
    except Exception:
        logging.getLogger(__name__).warning("cannot register HPU with Lightning", exc_info=True)


def is_autoload_enabled() -> bool:
    """Return whether implicit registration is allowed, that is HPU_CORE_AUTOLOAD is not "0"."""
    return os.environ.get(AUTOLOAD) != "0"


def register() -> None:
    """Register Gaudi with Lightning, now if it is imported and otherwise once it is. Idempotent."""
    _import_hook.install()


def register_if_enabled() -> None:
    """Call `register` unless HPU_CORE_AUTOLOAD is "0".

    For constructors of accelerators and strategies: Lightning would choose a CPU strategy for them.
    """
    if is_autoload_enabled():
        register()


def unregister() -> None:
    """Undo `register`: restore Lightning's classes, functions and registries. Existing Trainers keep theirs."""
    _import_hook.uninstall()
