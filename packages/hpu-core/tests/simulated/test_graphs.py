"""What the device sees of each step in lazy mode."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import hpu_sim
from hpu_core import bridge, frameworks

from .modules import BATCHES, Classifier, ManualClassifier, loader

pytestmark = pytest.mark.skipif(not bridge.is_lazy(), reason="Requires: lazy mode")

Callback = frameworks.current().pytorch("callbacks").Callback
MakeTrainer = Callable[..., Any]


class Counters(Callback):  # type: ignore[misc, valid-type] # The class depends on what is installed.
    """Notes the device's counters at the start of each batch, the last one of an epoch aside."""

    def __init__(self) -> None:
        self.epochs: list[list[dict[str, int]]] = []

    def note(self, *args: Any, **options: Any) -> None:
        """Take the counters down."""
        self.epochs[-1].append(hpu_sim.stats())

    def begin(self, *args: Any, **options: Any) -> None:
        """Begin an epoch."""
        self.epochs.append([])

    on_train_batch_start = on_validation_batch_start = on_test_batch_start = on_predict_batch_start = note
    on_train_epoch_start = on_validation_epoch_start = on_test_epoch_start = on_predict_epoch_start = begin

    def per_step(self, name: str, epoch: int = -1) -> list[int]:
        """Return by how much a counter rose in each step of an epoch but the last."""
        seen = [counters[name] for counters in self.epochs[epoch]]
        return [after - before for before, after in itertools.pairwise(seen)]


@pytest.fixture
def counters() -> Counters:
    """Counters that have noted nothing yet."""
    return Counters()


@pytest.mark.parametrize("options", [{}, {"gradient_clip_val": 0.1}], ids=["plain", "clipping"])
def test_a_training_step_is_two_graphs(options: dict[str, Any], trainer: MakeTrainer, counters: Counters) -> None:
    """Forward and backward are the one, clipping and the optimizer the other."""
    trainer(max_epochs=2, callbacks=counters, **options).fit(Classifier(), loader())

    assert counters.per_step("graphs") == [2] * (BATCHES - 1)


def test_the_first_epoch_has_no_more_graphs(trainer: MakeTrainer, counters: Counters) -> None:
    """From the second step on, in which the optimizer has its state, a step is two graphs."""
    trainer(callbacks=counters).fit(Classifier(), loader())

    assert counters.per_step("graphs")[1:] == [2] * (BATCHES - 2)


def test_nothing_is_recompiled_after_the_first_epoch(trainer: MakeTrainer, counters: Counters) -> None:
    """The graphs of a step are the same in every epoch."""
    trainer(max_epochs=2, callbacks=counters).fit(Classifier(), loader())

    assert counters.per_step("recompilations") == [0] * (BATCHES - 1)


def test_the_host_never_waits(trainer: MakeTrainer, counters: Counters) -> None:
    """Without logging, nothing in a step makes the host wait for the card or fetches anything from it."""
    trainer(max_epochs=2, callbacks=counters).fit(Classifier(), loader())

    waits = [counters.per_step(name) for name in ("host_syncs", "d2h_copies")]
    assert waits == [[0] * (BATCHES - 1)] * 2


def test_a_step_copies_its_batch_and_nothing_else(trainer: MakeTrainer, counters: Counters) -> None:
    """As many tensors go to the card as a batch has."""
    trainer(max_epochs=2, callbacks=counters).fit(Classifier(), loader())

    assert counters.per_step("h2d_copies") == [2] * (BATCHES - 1)


def test_accumulation_spares_the_optimizers_graph(trainer: MakeTrainer, counters: Counters) -> None:
    """Of two batches whose gradients are added up, only the second has an optimizer step."""
    trainer(max_epochs=2, accumulate_grad_batches=2, callbacks=counters).fit(Classifier(), loader())

    assert counters.per_step("graphs") == [1, 2, 1, 2, 1]


def test_manual_optimisation_closes_the_same_graphs(trainer: MakeTrainer, counters: Counters) -> None:
    """Two backward passes with a step each are four graphs."""
    trainer(max_epochs=2, callbacks=counters).fit(ManualClassifier(), loader())

    assert counters.per_step("graphs") == [4] * (BATCHES - 1)


class Quiet(Classifier):
    """Evaluates without logging, which would fetch the loss and so close the graph."""

    def validation_step(self, batch: Any, index: int) -> None:
        """Compute the loss."""
        self._loss(batch)

    test_step = validation_step


@pytest.mark.parametrize("loop", ["validate", "test", "predict"])
def test_an_evaluation_step_is_one_graph(loop: str, trainer: MakeTrainer, counters: Counters) -> None:
    """Closing the graph before each step keeps the steps apart; the first one is closed before the second."""
    getattr(trainer(callbacks=counters), loop)(Quiet(), loader())

    assert counters.per_step("graphs")[1:] == [1] * (BATCHES - 2)


def test_validation_leaves_the_training_graphs_alone(trainer: MakeTrainer, counters: Counters) -> None:
    """The graph of the last validation step is closed, so that it is no part of the next training step's."""
    trainer(max_epochs=2, callbacks=counters, num_sanity_val_steps=0).fit(Quiet(), loader(), loader())

    _, validation, training, _ = counters.epochs
    assert training[0]["graphs"] - validation[0]["graphs"] == BATCHES
