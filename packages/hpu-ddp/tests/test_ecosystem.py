"""Features of Lightning and torchmetrics that users combine with two cards, each on both ranks."""

from typing import Any

import torch
import torchmetrics

import hpu_sim
from hpu_testing.modules import BATCHES, Classifier

from .conftest import OnRanks
from .modules import make_loader, make_trainer


class _Measured(Classifier):
    """Updates a collection of metrics in each step, and computes it once per epoch."""

    def __init__(self) -> None:
        super().__init__()
        options: dict[str, Any] = {"task": "multiclass", "num_classes": 2}
        self.metrics = torchmetrics.MetricCollection(
            {"accuracy": torchmetrics.Accuracy(**options), "f1": torchmetrics.F1Score(**options)}
        )
        self.syncs: list[int] = []
        self.computed: dict[str, float] = {}

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor | None:
        before = hpu_sim.stats()["host_syncs"]
        self.metrics.update(self.net(batch[0]), batch[1])
        self.syncs.append(hpu_sim.stats()["host_syncs"] - before)
        return super().training_step(batch, index)

    def on_train_epoch_end(self) -> None:
        self.computed = {name: float(value) for name, value in self.metrics.compute().items()}


def _measure() -> tuple[list[int], dict[str, float]]:
    module = _Measured()
    make_trainer().fit(module, make_loader())
    return module.syncs, module.computed


def test_metrics_are_computed_over_all_ranks(on_ranks: OnRanks) -> None:
    """`compute` communicates once per epoch. `update` synchronizes in the first step only, to find shared states."""
    first, second = on_ranks(_measure)

    assert first[1] == second[1]
    assert first[1].keys() == {"accuracy", "f1"}
    assert first[0][0] > 0
    assert first[0][1:] == [0] * (BATCHES - 1)
