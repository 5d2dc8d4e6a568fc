"""Entry point of ``torch.backends``: torch >= 2.5 calls it at the end of ``import torch``."""

from __future__ import annotations

import os


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
    from hpu_sim import import_hooks

    # torch wraps errors of its entry points. The hook calls this again once torch has executed, outside of that.
    if not import_hooks.is_executing("torch"):
        from hpu_sim.activation import activate_from_environment

        activate_from_environment()
