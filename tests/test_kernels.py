"""Tests of hpu-kernels with packages that it does not import: hpu-deepspeed and hpu-export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional

from hpu_ddp import HPUDDPStrategy
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_export import export_checkpoint
from hpu_kernels import HPUKernels
from hpu_testing.modules import Classifier, make_loader, make_trainer
from hpu_testing.process_groups import leave_process_group

if TYPE_CHECKING:
    from pathlib import Path

    from hpu_testing import SharedRankPool


class _Attending(Classifier):
    """Classifier of points by attention between them, which logs what computes it."""

    table = ""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(16, eps=1e-6)

    def compute_loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the loss, scalar."""
        hidden = self.norm(self.net[0](batch[0]))[None]
        scores = self.net[2](functional.scaled_dot_product_attention(hidden, hidden, hidden)[0])
        return functional.cross_entropy(scores, batch[1])

    def configure_optimizers(self) -> Any:
        """Return torch's AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=0.01, eps=1e-12)

    def on_train_end(self) -> None:
        """Keep the table."""
        self.table = "".join(map(str, self.trainer.callbacks))


_STRATEGIES: dict[str, Any] = {
    "ddp": HPUDDPStrategy,
    "ZeRO 2": lambda: HPUDeepSpeedStrategy(stage=2),
    "ZeRO 3": lambda: HPUDeepSpeedStrategy(stage=3),
}


def _train(strategy: str, folder: str) -> tuple[str, float]:
    """Train and export without and with kernels; return the table, and the largest difference of an exported weight."""
    from safetensors.torch import load_file

    weights = []
    for name, callbacks in (("plain", []), ("fused", [HPUKernels()])):
        model = _Attending()
        trainer = make_trainer(strategy=_STRATEGIES[strategy](), callbacks=callbacks)
        trainer.fit(model, make_loader())
        checkpoint = trainer.strategy.broadcast(f"{folder}/{name}.ckpt")
        trainer.save_checkpoint(checkpoint)
        weights.append(load_file(export_checkpoint(checkpoint, f"{folder}/{name}-{trainer.global_rank}.safetensors")))
    leave_process_group()
    assert weights[0].keys() == weights[1].keys()
    return model.table, max(float((each - weights[1][name]).abs().max()) for name, each in weights[0].items())


@pytest.mark.parametrize(
    ("strategy", "steps"),
    [
        ("ddp", "AdamW: FusedAdamW"),
        pytest.param(
            "ZeRO 2",
            "DeepSpeedZeroOptimizer: left to torch, no optimizer of torch with a fused one",
            marks=pytest.mark.slow,
        ),
        ("ZeRO 3", "DeepSpeedZeroOptimizer_Stage3: left to torch, no optimizer of torch with a fused one"),
    ],
)
def test_exported_weights_are_those_without_kernels(
    strategy: str, steps: str, ranks: SharedRankPool, tmp_path: Path
) -> None:
    """DeepSpeed's optimizers stay."""
    for table, difference in ranks.call(_train, strategy, str(tmp_path), seconds=200):
        assert "scaled_dot_product_attention: FusedSDPA" in table
        assert "RMSNorm: FusedRMSNorm" in table
        assert steps in table
        assert difference < 1e-5
