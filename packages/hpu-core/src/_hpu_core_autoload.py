"""Entry point of `torch.backends`, which every `import torch` calls from torch 2.5 on.

Nothing imports this module. It imports `hpu_core` only where `_hpu_core_probe` finds a device or the simulator, because
a program with neither should not pay for that.
"""

import _hpu_core_probe


def autoload() -> None:
    """Call `hpu_core.registration.autoload` where there is a device or the simulator. Never raises.

    `import torch` ends with this call. An exception would make torch unusable.
    """
    try:
        if _hpu_core_probe.is_autoload_enabled() and _hpu_core_probe.maybe_has_hpu():
            from hpu_core import registration

            registration.autoload()
    except Exception:
        import logging

        logging.getLogger(__name__).warning("cannot register HPU with Lightning", exc_info=True)
