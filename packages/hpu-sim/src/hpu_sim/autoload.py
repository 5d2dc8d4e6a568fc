"""Entry point of ``torch.backends``: torch >= 2.5 calls it at the end of ``import torch``."""

from __future__ import annotations

import os


def autoload() -> None:
    """Start the simulator if ``HPU_SIM_DEVICES`` asks for it; else return at once.

    Raises:
        ValueError: If ``HPU_SIM_DEVICES`` or a companion has a value that cannot be.
        RuntimeError: If the device cannot be built, or a real bridge is installed. A program that asked for hpu tensors
            must not go on without them.
    """
    if not os.environ.get("HPU_SIM_DEVICES"):
        return
    from hpu_sim.activation import activate_from_environment

    activate_from_environment()
