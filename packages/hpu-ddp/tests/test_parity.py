"""Parity of data-parallel and single-device training of a classifier, and the cost of a step."""

import itertools
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import hpu_sim
from hpu_core import SingleHPUStrategy, frameworks
from hpu_ddp import HPUParallelStrategy
from hpu_testing.modules import images, make_sharded_loader, to_floats

from .conftest import OnRanks
from .modules import make_trainer

# A divisor of the number of images, so that the last batch is not smaller.
BATCH_SIZE = 64
STEPS = 100

_lightning = frameworks.current()
_Base = _lightning.pytorch().LightningModule


class ImageClassifier(_Base):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Two linear layers; records the loss of each step."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss, scalar."""
        images, labels = batch
        loss: torch.Tensor = torch.nn.functional.cross_entropy(self.net(images), labels)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> Any:
        """Return SGD, because adaptive steps amplify rounding errors."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def _train(ranks: int) -> tuple[list[float], list[float]]:
    """Train for 100 steps; return the losses, averaged over the ranks, and the weights."""
    module = ImageClassifier()
    strategy = HPUParallelStrategy()
    trainer = make_trainer(
        strategy=strategy, devices=ranks, max_epochs=-1, max_steps=STEPS, use_distributed_sampler=False
    )
    trainer.fit(module, make_sharded_loader(images(), BATCH_SIZE, trainer.global_rank, ranks))
    losses = strategy.reduce(torch.stack(module.losses), reduce_op="mean")
    return to_floats(list(losses)), _weights(module)


def _train_on_one_device() -> tuple[list[float], list[float]]:
    module = ImageClassifier()
    strategy = SingleHPUStrategy()
    trainer = make_trainer(strategy=strategy, devices=1, max_epochs=-1, max_steps=STEPS)
    trainer.fit(module, DataLoader(images(), batch_size=BATCH_SIZE))
    return to_floats(module.losses), _weights(module)


def _weights(module: torch.nn.Module) -> list[float]:
    flat: list[float] = torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).tolist()
    return flat


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_train_like_one_device(ranks: int, on_ranks: OnRanks) -> None:
    """Shards of a batch on several devices train like the whole batch on one device."""
    expected_losses, expected_weights = on_ranks(_train_on_one_device, count=2)[0]

    results = on_ranks(_train, ranks, count=ranks)

    assert len(expected_losses) == STEPS
    assert expected_losses[-1] < expected_losses[0] / 5
    for losses, weights in results:
        assert losses == pytest.approx(expected_losses, abs=1e-6)
        assert weights == pytest.approx(expected_weights, abs=1e-6)
    assert all(weights == results[0][1] for _, weights in results)


def _measure_steps(bucket_cap_mb: float) -> tuple[int, int, dict[str, set[int]]]:
    """Return the size of the gradients in bytes, the number of their buckets, and this rank's counters per step."""

    class StepCounter(_lightning.pytorch("callbacks").Callback):  # type: ignore[misc] # As for ImageClassifier.
        def on_train_batch_start(self, *args: Any) -> None:
            seen.append(hpu_sim.stats())

        def on_train_end(self, trainer: Any, *args: Any) -> None:
            buckets.extend(trainer.strategy.model._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(", "))

    seen: list[dict[str, int]] = []
    buckets: list[str] = []
    module = ImageClassifier()
    trainer = make_trainer(
        strategy=HPUParallelStrategy(bucket_cap_mb=bucket_cap_mb),
        max_steps=8,
        callbacks=[StepCounter()],
        use_distributed_sampler=False,
    )
    # torch 2.0 ignores `bucket_cap_mb` for the first bucket.
    with mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", int(bucket_cap_mb * 2**20)):
        trainer.fit(module, make_sharded_loader(images(), BATCH_SIZE, trainer.global_rank, 2))
    size = sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())
    # In the first step, DDP rebuilds the buckets and the optimizer creates its state; later ones compile for these.
    steps = itertools.pairwise(seen[4:])
    steps_counters = [{name: after[name] - before[name] for name in before} for before, after in steps]
    return size, len(buckets), {name: {step[name] for step in steps_counters} for name in steps_counters[0]}


@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize(("bucket_cap_mb", "buckets"), [(230, 1), (0.001, 2)])
def test_step_runs_one_collective_per_bucket(bucket_cap_mb: float, buckets: int, lazy: bool, on_ranks: OnRanks) -> None:
    """The collectives of a step transfer as many bytes as the gradients have.

    A step copies nothing but the next batch's two tensors to the device, and the host waits for none. In lazy mode it
    is a graph up to each all-reduce, and one of the optimizer.
    """
    for size, seen, step in on_ranks(_measure_steps, bucket_cap_mb, lazy=lazy):
        assert seen == buckets
        assert (step["host_syncs"], step["d2h_copies"], step["h2d_copies"]) == ({0}, {0}, {2})
        if lazy and buckets == 1:
            assert (step["graphs"], step["recompilations"]) == ({2}, {0})
        assert step["collectives"] == {buckets}
        assert step["collective_bytes"] == {size}
