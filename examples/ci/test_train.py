"""A suite for Gaudi code that runs everywhere: on simulated cards in CI, on real ones where there are some.

    pip install "hpu-sim[pytest]"
    pytest

`@pytest.mark.hpu` says what a test needs. Without a Gaudi machine each of these runs on such a simulated one, in a
process of its own; `hpu-sim run -m pytest` runs those that need one card in a single process, which is quicker.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from train import make_batches, make_model, train


def compiled_graphs() -> int:
    """Return how many graphs the card has compiled, by the bridge's own metrics."""
    from habana_frameworks.torch.hpu.metrics import metric_global

    metric = metric_global("graph_compilation")
    assert metric is not None
    return int(dict(metric.stats())["TotalNumber"])


@pytest.mark.hpu
def test_a_card_computes_what_the_cpu_does() -> None:
    """The losses of a training agree, up to what a card rounds otherwise."""
    on_card = train(make_model().to("hpu"), make_batches(10), "hpu")
    on_cpu = train(make_model(), make_batches(10), "cpu")

    torch.testing.assert_close(torch.tensor(on_card), torch.tensor(on_cpu), rtol=1e-3, atol=1e-3)


@pytest.mark.hpu(lazy=True)
def test_every_batch_runs_the_same_graphs() -> None:
    """After the first steps nothing is compiled any more."""
    model = make_model().to("hpu")
    train(model, make_batches(3), "hpu")
    before = compiled_graphs()
    train(model, make_batches(3), "hpu")

    assert compiled_graphs() == before


@pytest.mark.hpu(devices=2)
def test_two_cards_train_together() -> None:
    """Each rank has a process and a card of its own, and the loss goes down."""
    script = Path(__file__).with_name("train.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    first, last = map(float, result.stdout.split())

    assert last < first / 2
