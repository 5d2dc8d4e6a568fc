"""Several cards give what one card gives, on handwritten digits, and nothing but gradients goes between them."""

import functools
import itertools
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hpu_sim
from hpu_core import SingleHPUStrategy, frameworks
from hpu_ddp import HPUParallelStrategy

from .conftest import OnRanks
from .modules import Loader, numbers, trainer

# 28 batches of 64 of the 1,797 digits, so that no batch of an epoch is smaller than the others.
SAMPLES = 1792
BATCH_SIZE = 64
STEPS = 100

_lightning = frameworks.current()
_Base = _lightning.pytorch().LightningModule


@functools.cache
def _digits() -> TensorDataset:
    """Return images of shape (64,), from 0 to 1, and which digit each is."""
    data = load_digits()
    images = torch.tensor(data.data[:SAMPLES], dtype=torch.float32) / 16
    return TensorDataset(images, torch.tensor(data.target[:SAMPLES]))


class Digits(_Base):  # type: ignore[misc, valid-type] # The class depends on what is installed.
    """Two linear layers, and the loss of each step."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss, scalar."""
        images, digits = batch
        loss: torch.Tensor = torch.nn.functional.cross_entropy(self.net(images), digits)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> Any:
        """Return an optimizer whose steps are as long as the gradient: its last digit must not decide where they go."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def _data(rank: int, ranks: int) -> Loader:
    """Give a rank its share of each batch, the same samples in the same order as one card would see them."""
    sampler = DistributedSampler(_digits(), num_replicas=ranks, rank=rank, shuffle=False)  # type: ignore[var-annotated]
    return DataLoader(_digits(), batch_size=BATCH_SIZE // ranks, sampler=sampler)


def _train(ranks: int) -> tuple[list[float], list[float]]:
    """Train for 100 steps; return the losses, averaged over the ranks, and the weights."""
    module = Digits()
    strategy = HPUParallelStrategy()
    run = trainer(strategy=strategy, devices=ranks, max_epochs=-1, max_steps=STEPS, use_distributed_sampler=False)
    run.fit(module, _data(run.global_rank, ranks))
    losses = strategy.reduce(torch.stack(module.losses), reduce_op="mean")
    return numbers(list(losses)), _weights(module)


def _train_alone() -> tuple[list[float], list[float]]:
    module = Digits()
    strategy = SingleHPUStrategy()
    run = trainer(strategy=strategy, devices=1, max_epochs=-1, max_steps=STEPS)
    run.fit(module, DataLoader(_digits(), batch_size=BATCH_SIZE))
    return numbers(module.losses), _weights(module)


def _weights(module: torch.nn.Module) -> list[float]:
    flat: list[float] = torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).tolist()
    return flat


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_like_one_card(ranks: int, on_ranks: OnRanks) -> None:
    """Shares of a batch on several cards give the losses and weights of the whole batch on one, after 100 steps too."""
    expected_losses, expected_weights = on_ranks(_train_alone, count=2)[0]

    results = on_ranks(_train, ranks, count=ranks)

    assert len(expected_losses) == STEPS
    assert expected_losses[-1] < expected_losses[0] / 5
    for losses, weights in results:
        assert losses == pytest.approx(expected_losses, abs=1e-6)
        assert weights == pytest.approx(expected_weights, abs=1e-6)
    assert all(weights == results[0][1] for _, weights in results)


def _count(bucket_cap_mb: float) -> tuple[int, int, dict[str, set[int]]]:
    """Return the size of the gradients in bytes, the number of their buckets, and what the steps of this rank took."""

    class Counting(_lightning.pytorch("callbacks").Callback):  # type: ignore[misc] # As for Digits.
        def on_train_batch_start(self, *args: Any) -> None:
            seen.append(hpu_sim.stats())

        def on_train_end(self, run: Any, *args: Any) -> None:
            buckets.extend(run.strategy.model._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(", "))

    seen: list[dict[str, int]] = []
    buckets: list[str] = []
    module = Digits()
    run = trainer(
        strategy=HPUParallelStrategy(bucket_cap_mb=bucket_cap_mb),
        max_steps=8,
        callbacks=[Counting()],
        use_distributed_sampler=False,
    )
    # Torch 2.0 lets the first bucket have this size instead of what it is told.
    with mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", int(bucket_cap_mb * 2**20)):
        run.fit(module, _data(run.global_rank, 2))
    size = sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())
    # In the first step torch arranges the buckets in the order in which gradients come, and the optimizer its state.
    steps = itertools.pairwise(seen[2:])
    differences = [{name: after[name] - before[name] for name in before} for before, after in steps]
    return size, len(buckets), {name: {step[name] for step in differences} for name in differences[0]}


@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize(("bucket_cap_mb", "buckets"), [(230, 1), (0.001, 2)])
def test_a_step_exchanges_its_gradients_and_nothing_else(
    bucket_cap_mb: float, buckets: int, lazy: bool, on_ranks: OnRanks
) -> None:
    """On each rank, a step is one collective per bucket of gradients, and as many bytes as they have."""
    for size, seen, step in on_ranks(_count, bucket_cap_mb, lazy=lazy):
        assert seen == buckets
        assert step["collectives"] == {buckets}
        assert step["collective_bytes"] == {size}


@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize("bucket_cap_mb", [230, 0.001])
def test_no_step_waits(bucket_cap_mb: float, lazy: bool, on_ranks: OnRanks) -> None:
    """No rank waits for its card, copies anything from it, or anything to it but the next batch's two tensors."""
    for _, _, step in on_ranks(_count, bucket_cap_mb, lazy=lazy):
        assert (step["host_syncs"], step["d2h_copies"], step["h2d_copies"]) == ({0}, {0}, {2})


def test_a_lazy_step_is_two_graphs(on_ranks: OnRanks) -> None:
    """As on one card: the first ends where gradients leave, the second is the optimizer's. None is compiled again."""
    for _, _, step in on_ranks(_count, 230, lazy=True):
        assert (step["graphs"], step["recompilations"]) == ({2}, {0})
