"""Features of Lightning and torchmetrics that users combine with two cards, each on both ranks."""

from pathlib import Path
from typing import Any

import torch
import torchmetrics

import hpu_sim
from hpu_core import frameworks
from hpu_testing.modules import BATCHES, Classifier, parameter_bytes, to_floats

from .conftest import OnRanks
from .modules import make_loader, make_trainer

_lightning = frameworks.current()
_callbacks = _lightning.pytorch("callbacks")


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


class _DropoutClassifier(Classifier):
    """Classifier whose losses depend on the generator of each rank's device."""

    def __init__(self) -> None:
        super().__init__()
        self.net.append(torch.nn.Dropout(0.5))


def _resume_with_dropout(folder: str) -> tuple[Any, Any]:
    """Return the losses of the second epoch of this rank and the weights, without and with an interruption before."""
    results = []
    for seed, checkpoint in ((5, None), (6, f"{folder}/epoch=0.ckpt")):
        module = _DropoutClassifier()
        saving = _callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)
        run = make_trainer(callbacks=[saving], enable_checkpointing=True, max_epochs=2)
        torch.manual_seed(seed + run.global_rank)
        run.fit(module, make_loader(), ckpt_path=checkpoint)
        assert len(module.losses) == BATCHES * (2 if checkpoint is None else 1)
        results.append((to_floats(module.losses[-BATCHES:]), parameter_bytes(module)))
    return results[0], results[1]


def test_resumed_dropout_draws_the_numbers_of_an_uninterrupted_training(on_ranks: OnRanks, tmp_path: Path) -> None:
    (expected, resumed), (other_expected, other_resumed) = on_ranks(_resume_with_dropout, str(tmp_path))

    assert resumed == expected
    assert other_resumed == other_expected
    assert expected[0] != other_expected[0]
