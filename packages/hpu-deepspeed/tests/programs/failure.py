"""Training on two devices in which rank 1 fails in its third batch.

Arguments: "Trainer" or "Fabric", and perhaps a folder in which a callback saves then.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from tests.modules import BUCKET_SIZE, Classifier, compute_loss, loader, mlp, trainer

from hpu_core import HPUAccelerator, frameworks
from hpu_deepspeed import FabricHPUDeepSpeedStrategy, HPUDeepSpeedStrategy

_BATCHES = 6
_CONFIG = {"zero_optimization": {"stage": 2, "reduce_bucket_size": BUCKET_SIZE}, "zero_allow_untested_optimizer": True}


def fail() -> None:
    """Raise an error."""
    raise KeyError("a missing column")


class FailingClassifier(Classifier):
    """Classifier that fails on rank 1."""

    def training_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        """Return the loss, or fail."""
        if (self.global_rank, index) == (1, 2):
            fail()
        return compute_loss(self.net, batch)


def train_with_trainer() -> None:
    """Train with the Trainer."""
    on_exception = frameworks.current().pytorch("callbacks").OnExceptionCheckpoint
    callbacks = [on_exception(folder) for folder in sys.argv[2:]]
    run = trainer(HPUDeepSpeedStrategy(config=_CONFIG), callbacks=callbacks, enable_checkpointing=bool(callbacks))
    run.fit(FailingClassifier(), loader(run.global_rank, 2, _BATCHES))


def train_with_fabric() -> None:
    """Train with Fabric."""
    strategy = FabricHPUDeepSpeedStrategy(config=_CONFIG)
    fabric: Any = frameworks.current().fabric().Fabric(accelerator=HPUAccelerator(), devices=2, strategy=strategy)
    fabric.launch()
    net = mlp()
    module, optimizer = fabric.setup(net, torch.optim.Adam(net.parameters(), lr=0.02))
    for index, batch in enumerate(loader(fabric.global_rank, 2, _BATCHES)):
        if (fabric.global_rank, index) == (1, 2):
            fail()
        fabric.backward(compute_loss(module, tuple(part.to(fabric.device) for part in batch)))
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    {"Trainer": train_with_trainer, "Fabric": train_with_fabric}[sys.argv[1]]()
