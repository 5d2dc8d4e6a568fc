"""Names of Lightning that hpu-compile builds on, from the framework that hpu-core selects.

Importing this module imports that framework. Type checkers see `lightning`; the sources of `pytorch_lightning` are
generated from the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.utilities import rank_zero_info
else:
    from hpu_core import frameworks

    _framework = frameworks.current()
    Callback = _framework.pytorch("callbacks").Callback
    LightningModule = _framework.pytorch().LightningModule
    Trainer = _framework.pytorch().Trainer
    rank_zero_info = _framework.pytorch("utilities").rank_zero_info
