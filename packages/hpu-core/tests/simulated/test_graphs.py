"""Tests of the graphs of each step in lazy mode."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hpu_sim
from hpu_core import HPUAccelerator, bridge, frameworks
from hpu_testing.modules import BATCHES, Classifier, ManualClassifier, make_loader

pytestmark = pytest.mark.skipif(not bridge.is_lazy(), reason="Requires: lazy mode")

Callback = frameworks.current().pytorch("callbacks").Callback
MakeTrainer = Callable[..., Any]


class Counters(Callback):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Callback that records the simulator's counters at the start of each batch."""

    def __init__(self) -> None:
        self.epochs: list[list[dict[str, int]]] = []

    def record(self, *args: Any, **options: Any) -> None:
        self.epochs[-1].append(hpu_sim.stats())

    def start_epoch(self, *args: Any, **options: Any) -> None:
        self.epochs.append([])

    on_train_batch_start = on_validation_batch_start = on_test_batch_start = on_predict_batch_start = record
    on_train_epoch_start = on_validation_epoch_start = on_test_epoch_start = on_predict_epoch_start = start_epoch

    def per_step(self, name: str, epoch: int = -1) -> list[int]:
        """Return the increase of a counter in each step of an epoch but the last."""
        values = [counters[name] for counters in self.epochs[epoch]]
        return [after - before for before, after in itertools.pairwise(values)]


@pytest.fixture
def counters() -> Counters:
    """Empty counters."""
    return Counters()


@pytest.mark.parametrize("options", [{}, {"gradient_clip_val": 0.1}], ids=["plain", "clipping"])
def test_training_step(options: dict[str, Any], trainer: MakeTrainer, counters: Counters) -> None:
    """Forward and backward are one graph, clipping and the optimizer the other; only the batch is copied.

    Nothing is compiled after the first epoch, and the optimizer has its state from the second step on.
    """
    trainer(max_epochs=2, callbacks=counters, **options).fit(Classifier(), make_loader())

    expected = {"graphs": 2, "recompilations": 0, "host_syncs": 0, "d2h_copies": 0, "h2d_copies": 2}
    assert {name: counters.per_step(name) for name in expected} == {
        name: [count] * (BATCHES - 1) for name, count in expected.items()
    }
    assert counters.per_step("graphs", 0)[1:] == [2] * (BATCHES - 2)


@pytest.mark.parametrize("launched", [False, True], ids=["not launched", "launched"])
def test_step_of_fabric_is_two_graphs(launched: bool) -> None:
    fabric = frameworks.current().fabric().Fabric(accelerator=HPUAccelerator(), devices=1)
    if launched:
        fabric.launch()
    module = torch.nn.Linear(4, 1)
    module, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), lr=0.1))
    batch = fabric.to_device(torch.ones(2, 4))
    graphs = []
    for _ in range(3):
        before = hpu_sim.stats()["graphs"]
        optimizer.zero_grad()
        fabric.backward(module(batch).sum())
        optimizer.step()
        graphs.append(hpu_sim.stats()["graphs"] - before)

    assert graphs[1:] == [2, 2]


def test_accumulation_skips_the_graph_of_the_optimizer(trainer: MakeTrainer, counters: Counters) -> None:
    trainer(max_epochs=2, accumulate_grad_batches=2, callbacks=counters).fit(Classifier(), make_loader())

    assert counters.per_step("graphs") == [1, 2, 1, 2, 1]


def test_manual_optimization_launches_the_same_graphs(trainer: MakeTrainer, counters: Counters) -> None:
    """Two backward passes with one optimizer step each are four graphs."""
    trainer(max_epochs=2, callbacks=counters).fit(ManualClassifier(), make_loader())

    assert counters.per_step("graphs") == [4] * (BATCHES - 1)


class Quiet(Classifier):
    """Classifier that evaluates without logging, which would copy the loss to the host."""

    def validation_step(self, batch: Any, index: int) -> None:
        """Compute the loss."""
        self.compute_loss(batch)

    test_step = validation_step


@pytest.mark.parametrize("loop", ["validate", "test", "predict"])
def test_evaluation_step_is_one_graph(loop: str, trainer: MakeTrainer, counters: Counters) -> None:
    getattr(trainer(callbacks=counters), loop)(Quiet(), make_loader())

    assert counters.per_step("graphs")[1:] == [1] * (BATCHES - 2)


def test_validation_does_not_change_training_graphs(trainer: MakeTrainer, counters: Counters) -> None:
    """The graph of the last validation step is launched before training continues."""
    trainer(max_epochs=2, callbacks=counters, num_sanity_val_steps=0).fit(Quiet(), make_loader(), make_loader())

    _, validation, training, _ = counters.epochs
    assert training[0]["graphs"] - validation[0]["graphs"] == BATCHES
