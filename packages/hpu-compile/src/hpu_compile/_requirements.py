"""What torch.compile needs on a Gaudi, checked before a model is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from hpu_compile import _torch
from hpu_core import bridge

if TYPE_CHECKING:
    from collections.abc import Iterable

BACKEND: Final = "hpu_backend"
"""The bridge's backend, the only one that compiles for the card."""


def validate(modules: Iterable[torch.nn.Module]) -> None:
    """Check that torch can compile modules for a Gaudi, here.

    Raises:
        ModuleNotFoundError: The bridge is not installed.
        RuntimeError: torch is too old, the bridge is in lazy mode, or ZeRO, stage 3, partitions the parameters.
    """
    if not _torch.supports_regions():
        raise RuntimeError(
            f"hpu-compile needs torch 2.5 or newer (SynapseAI 1.19), which compiles one graph for all blocks of a "
            f"class; this is torch {torch.__version__}"
        )
    if bridge.is_lazy():
        raise RuntimeError(
            "torch.compile and lazy mode exclude each other, and this process is in lazy mode: set PT_HPU_LAZY_MODE=0 "
            "before it starts, or leave hpu-compile out; HPU graphs (hpu_bucketing.HPUGraphs) are for lazy mode"
        )
    if any(hasattr(parameter, "ds_id") for module in modules for parameter in module.parameters()):
        raise RuntimeError(
            "torch.compile does not support ZeRO stage 3, whose hooks gather the parameters of each module "
            "(pytorch #115484 and #140091 are open): use stage 1 or 2, or FSDP2 (strategy='hpu_model_parallel')"
        )
