"""Tests for Gaudi code, which run on simulated cards in CI and on real cards on a Gaudi machine.

    pip install "./packages/hpu-sim[pytest]"      # from a checkout; nothing is on a package index yet
    pytest

`@pytest.mark.hpu` states what machine a test needs. Without a Gaudi, each of these tests runs on a simulated machine in
a process of its own. `hpu-sim run -m pytest` runs the tests that need one card in a single process, which is faster.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from train import make_batches, make_model, train


def compiled_graphs() -> int:
    """Return the number of compiled graphs, by the metrics of the bridge (Intel's `habana_frameworks`)."""
    from habana_frameworks.torch.hpu.metrics import metric_global

    metric = metric_global("graph_compilation")
    assert metric is not None
    return int(dict(metric.stats())["TotalNumber"])


@pytest.mark.hpu
def test_losses_match_the_cpu() -> None:
    """The losses on a card equal the CPU's up to rounding."""
    on_hpu = train(make_model().to("hpu"), make_batches(10), "hpu")
    on_cpu = train(make_model(), make_batches(10), "cpu")

    torch.testing.assert_close(torch.tensor(on_hpu), torch.tensor(on_cpu), rtol=1e-3, atol=1e-3)


@pytest.mark.hpu(lazy=True)
def test_every_batch_runs_the_same_graphs() -> None:
    """Later steps compile no graph."""
    model = make_model().to("hpu")
    train(model, make_batches(3), "hpu")
    before = compiled_graphs()
    train(model, make_batches(3), "hpu")

    assert compiled_graphs() == before


@pytest.mark.hpu(devices=2)
def test_training_on_two_devices() -> None:
    """Each rank has a card of its own, and the loss decreases."""
    script = Path(__file__).with_name("train.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    first, last = map(float, result.stdout.split())

    assert last < first / 2
