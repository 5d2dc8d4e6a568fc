"""What documents leave out: the names that their blocks use without defining them."""

from __future__ import annotations

from typing import Final

# The statement that defines each, with the framework's two halves in braces.
MISSING: Final = {
    "DeepSpeedPrecisionPlugin": "from {pytorch}.plugins import DeepSpeedPrecisionPlugin",
    "HPUAccelerator": "from lightning_habana.pytorch.accelerator import HPUAccelerator",
    "HPUDeepSpeedStrategy": "from lightning_habana.pytorch.strategies import HPUDeepSpeedStrategy",
    "LightningModule": "from {pytorch} import LightningModule",
    "List": "from typing import List",
    "LitClassifier": "from fixtures import Model as LitClassifier",
    "MNISTDataModule": "from fixtures import Digits as MNISTDataModule",
    "TestCB": "from {pytorch} import Callback as TestCB",
    "Trainer": "from {pytorch} import Trainer",
    "Tuple": "from typing import Tuple",
    "_TORCH_LRSCHEDULER": "from torch.optim.lr_scheduler import LRScheduler as _TORCH_LRSCHEDULER",
    "batch_size": "batch_size = 64",
    "nn": "from torch import nn",
    "torch": "import torch",
}

# What the pages of this repository leave out. Its own names are not among them: a reader has to be told where they are.
LEFT_OUT_HERE: Final = {
    "model": "from fixtures import ModelWithAdam; model = ModelWithAdam()",
    "train_loader": "from fixtures import Digits; train_loader = Digits(batch_size=8).train_dataloader()",
    "train_one_step": "from fixtures import one_step as train_one_step",
}
