"""Test of mixed precision with data parallelism: hpu-precision and hpu-ddp, which do not import each other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch

from hpu_ddp import HPUDDPStrategy
from hpu_kernels import HPUKernels
from hpu_precision import HPUPrecisionPlugin
from hpu_testing import RankPool
from hpu_testing.modules import Classifier, make_loader, make_trainer
from hpu_testing.process_groups import leave_process_group

if TYPE_CHECKING:
    from pathlib import Path

    from hpu_testing import SharedRankPool


class _Recorder(Classifier):
    """Classifier that keeps the dtype of its scores."""

    dtype = ""

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return the scores, (batch, 2)."""
        scores = super().forward(points)
        self.dtype = str(scores.dtype)
        return scores

    def compute_loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the loss, scalar."""
        loss: torch.Tensor = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        return loss


def _train(arguments: dict[str, Any]) -> tuple[str, list[list[float]]]:
    """Train without and with the bridge's kernels; return the dtype of the scores, and the final weights of both."""
    weights = []
    for fused in (False, True):
        model = _Recorder()
        trainer = make_trainer(
            strategy=HPUDDPStrategy(),
            plugins=[HPUPrecisionPlugin(**arguments)],
            callbacks=[HPUKernels(optimizer=False)] if fused else [],
            gradient_clip_val=0.05,
            max_epochs=3,
        )
        trainer.fit(model, make_loader(8, 8))
        weights.append(torch.cat([each.detach().flatten().cpu() for each in model.parameters()]).tolist())
    leave_process_group()
    return model.dtype, weights


def _check(results: list[tuple[str, list[list[float]]]], expected: str) -> None:
    """Check that weights of both ranks are bitwise equal, and within rounding with the bridge's kernels."""
    first, second = results
    assert first == second
    dtype, (torchs, fused) = first
    assert dtype == expected
    assert fused == pytest.approx(torchs, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({"precision": 16}, "torch.float16", id="fp16"),
        pytest.param({"precision": 16, "bf16_ops": ["linear", "relu"]}, "torch.bfloat16", id="own lists"),
    ],
)
def test_ranks_train_in_the_precision_with_equal_weights(
    arguments: dict[str, Any], expected: str, ranks: SharedRankPool
) -> None:
    _check(ranks.call(_train, arguments, seconds=120), expected)


@pytest.mark.slow
def test_ranks_train_with_hmp(tmp_path: Path) -> None:
    with mock.patch.dict(os.environ, {"HPU_SIM_RELEASE": "1.11.0"}), RankPool(2, tmp_path) as ranks:
        _check(ranks.call(_train, {"precision": 16}, seconds=120), "torch.bfloat16")
