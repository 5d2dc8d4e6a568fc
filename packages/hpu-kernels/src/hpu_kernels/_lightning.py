"""Names of Lightning that hpu-kernels builds on, from the framework that hpu-core selects, if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.utilities import rank_zero_info
else:
    from hpu_core import frameworks

    try:
        _framework = frameworks.current()
    except ModuleNotFoundError:
        # In a plain loop, `HPUKernels` is no callback.
        Callback, rank_zero_info = object, print
    else:
        Callback = _framework.pytorch("callbacks").Callback
        LightningModule = _framework.pytorch().LightningModule
        Trainer = _framework.pytorch().Trainer
        rank_zero_info = _framework.pytorch("utilities").rank_zero_info
