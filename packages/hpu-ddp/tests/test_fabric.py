"""Fabric's strategies, on simulated devices."""

import itertools
import json
import os
from typing import Any
from unittest import mock

import pytest
import torch

import hpu_sim
from hpu_core import HPUAccelerator, bridge, frameworks
from hpu_ddp import FabricHPUDDPStrategy
from hpu_ddp._launchers import FabricHPUMultiProcessingLauncher
from hpu_testing.modules import BATCHES, parameter_bytes

from .conftest import OnRanks, Run
from .failure_helpers import has_rank_error
from .modules import make_loader

_lightning = frameworks.current()


def _fabric(**options: Any) -> Any:
    """Return Fabric for two ranks, launched."""
    strategy = options.pop("strategy", None) or FabricHPUDDPStrategy()
    fabric = _lightning.fabric().Fabric(accelerator=HPUAccelerator(), strategy=strategy, devices=2, **options)
    fabric.launch()
    return fabric


def _network() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def _train(
    accumulate: int = 1, batches: int = BATCHES, **options: Any
) -> tuple[bytes, list[float], list[dict[str, int]]]:
    """Train for an epoch; return the weights, the losses, and the device's counters before each batch."""
    fabric = _fabric(**options)
    network = _network()
    network, optimizer = fabric.setup(network, torch.optim.SGD(network.parameters(), lr=0.1))
    losses, counters = [], []
    for index, (points, classes) in enumerate(fabric.setup_dataloaders(make_loader(batches))):
        counters.append(hpu_sim.stats())
        last = (index + 1) % accumulate == 0
        with fabric.no_backward_sync(network, enabled=not last):
            loss = torch.nn.functional.cross_entropy(network(points), classes)
            fabric.backward(loss)
        if last:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return parameter_bytes(network), [float(loss) for loss in losses], counters


def _train_ddp() -> tuple[bytes, list[float]]:
    return _train()[:2]


def test_ranks_with_different_data_have_the_same_weights(on_ranks: OnRanks) -> None:
    (first, losses), (second, others) = on_ranks(_train_ddp)

    assert first == second
    assert first != parameter_bytes(_network())
    assert not set(losses) & set(others)


def _collectives_per_batch() -> list[int]:
    counters = _train(accumulate=3, batches=12)[2]
    return [after["collectives"] - before["collectives"] for before, after in itertools.pairwise(counters)]


def test_no_backward_sync_runs_no_collectives(on_ranks: OnRanks) -> None:
    # DDP also synchronizes the rebuilt buckets after the first all-reduce.
    assert [counts[4:] for counts in on_ranks(_collectives_per_batch)] == [[0, 1, 0, 0, 1, 0, 0]] * 2


# A later test launches ranks by popen.
@pytest.mark.slow
def test_spawn(run: Run) -> None:
    done = run("fabric.py", "spawn")

    assert (done.code, done.leaked_pids) == (0, ()), done.output
    reports = [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]
    assert sorted(report["rank"] for report in reports) == [0, 1]
    assert len({report["weight"] for report in reports}) == 1


def test_launch_with_an_open_device_raises_an_error() -> None:
    launcher = FabricHPUMultiProcessingLauncher(FabricHPUDDPStrategy(start_method="spawn"))

    with (
        mock.patch.object(bridge, "is_open", return_value=True),
        pytest.raises(RuntimeError, match="this process has opened a card"),
    ):
        launcher.launch(print)


def test_spawned_ranks_use_the_framework_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library may import the other one as well, and a spawned rank imports both before it decides."""
    monkeypatch.delenv(frameworks.OVERRIDE, raising=False)
    base = FabricHPUMultiProcessingLauncher.__mro__[3]
    monkeypatch.setattr(base, "launch", lambda *_, **__: os.environ[frameworks.OVERRIDE])
    launcher = FabricHPUMultiProcessingLauncher(FabricHPUDDPStrategy(start_method="spawn"))
    launcher.run = print

    assert launcher.launch(print) == frameworks.current().name
    assert frameworks.OVERRIDE not in os.environ


def test_a_barrier_that_another_rank_does_not_enter_ends_the_job(run: Run) -> None:
    """Asynchronously, the other rank ends its program, whose exit the bridge's barrier would take for it."""
    done = run("fabric.py", "popen", "apart", HPU_SIM_ASYNC="1")

    assert (done.code, done.leaked_pids) == (1, ())
    assert has_rank_error(done.output, 1, r"left the job .*; rank 0"), done.output
    assert "passed the barrier" not in done.output
