"""Simulated cards for the process of a suite, whose tests share them."""

import os
from typing import Final

import hpu_sim

# Variables of the developer's shell, a launcher or another machine.
_PREFIXES: Final = ("HABANA_", "HLS_", "HPU_", "PT_HPU_")
_NAMES: Final = ("ID", "LOCAL_RANK", "RANK", "WORLD_SIZE")


def activate() -> None:
    """Give this process a simulated machine of two cards; to be called before any test module imports torch."""
    for name in [each for each in os.environ if each in _NAMES or each.startswith(_PREFIXES)]:
        # The folder of the compiled extension.
        if name != "HPU_SIM_CACHE":
            del os.environ[name]
    hpu_sim.activate(devices=2)

    import torch

    torch.set_num_threads(1)
