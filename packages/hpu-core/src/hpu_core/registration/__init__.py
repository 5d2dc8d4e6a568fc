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

import _hpu_core_probe
from hpu_core.registration import _import_hook


def autoload() -> None:
    """Call `register` if `should_autoload` is true. Never raises.

    Runs on `import hpu_core`, and for programs that do not import it on `import torch`; see `_hpu_core_autoload`.
    """
    try:
        if should_autoload():
            register()
    except Exception:
        logging.getLogger(__name__).warning("cannot register HPU with Lightning", exc_info=True)


def should_autoload() -> bool:
    """Return whether `autoload` registers: it is enabled and this machine may have a device or the simulator.

    Takes microseconds and may report a device where there is none; use `hpu_core.is_available` for an exact answer.
    """
    return _hpu_core_probe.is_autoload_enabled() and _hpu_core_probe.maybe_has_hpu()


def register() -> None:
    """Register Gaudi with Lightning, now if it is imported and otherwise once it is. Idempotent."""
    _import_hook.install()


def register_if_enabled() -> None:
    """Call `register` unless HPU_CORE_AUTOLOAD is "0".

    For constructors of accelerators and strategies: Lightning would choose a CPU strategy for them.
    """
    if _hpu_core_probe.is_autoload_enabled():
        register()


def unregister() -> None:
    """Undo `register`: restore Lightning's classes, functions and registries. Existing Trainers keep theirs."""
    _import_hook.uninstall()
