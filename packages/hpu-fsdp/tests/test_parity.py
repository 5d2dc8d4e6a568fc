"""Parity of sharded training and training on one device."""

from typing import Any

import pytest
import torch

from hpu_fsdp import HPUFSDPStrategy

from .conftest import OnRanks
from .modules import (
    UNITS,
    ImageClassifier,
    make_trainer,
    train,
    train_on_one_device,
)

STRATEGIES: dict[str, dict[str, Any]] = {
    "FULL_SHARD": {},
    "SHARD_GRAD_OP": {"sharding_strategy": "SHARD_GRAD_OP"},
    "NO_SHARD": {"sharding_strategy": "NO_SHARD"},
    "HYBRID_SHARD, 1 replica": {"sharding_strategy": "HYBRID_SHARD", "device_mesh": (1, 2)},
    "HYBRID_SHARD, 2 replicas": {"sharding_strategy": "HYBRID_SHARD", "device_mesh": (2, 1)},
    "_HYBRID_SHARD_ZERO2": {"sharding_strategy": "_HYBRID_SHARD_ZERO2"},
    "offload": {"cpu_offload": True},
    "NO_SHARD, offload": {"sharding_strategy": "NO_SHARD", "cpu_offload": True},
}


def train_sharded(**options: Any) -> list[float]:
    """Train with FSDP on two ranks; return the losses."""
    strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), **options)
    return train(ImageClassifier(), make_trainer(strategy=strategy))


def _train_all() -> dict[str, list[float]]:
    return {name: train_sharded(**options) for name, options in STRATEGIES.items()}


@pytest.fixture(scope="module")
def expected(on_ranks: OnRanks) -> list[float]:
    """Losses of one device."""
    losses: list[float] = on_ranks(train_on_one_device)[0]
    return losses


@pytest.fixture(scope="module")
def sharded(on_ranks: OnRanks) -> list[dict[str, list[float]]]:
    """Losses of two ranks, by strategy."""
    return on_ranks(_train_all)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_ranks_train_like_one_device(
    strategy: str, sharded: list[dict[str, list[float]]], expected: list[float]
) -> None:
    """Shards of a batch on several devices train like the whole batch on one device."""
    assert expected[-1] < expected[0] * 0.75
    for losses in sharded:
        assert losses[strategy] == pytest.approx(expected, abs=1e-5)


def _train_on_single_rank() -> tuple[list[float], list[float], str]:
    strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), sharding_strategy="HYBRID_SHARD")
    losses = train(ImageClassifier(), make_trainer(strategy=strategy, devices=1))
    return train_on_one_device(), losses, strategy.sharding_strategy.name


def test_single_rank_does_not_shard(on_ranks: OnRanks) -> None:
    """On one device, no parameter is gathered or freed."""
    [(expected, losses, strategy)] = on_ranks(_train_on_single_rank, count=1)

    assert losses == pytest.approx(expected, abs=1e-6)
    assert strategy == "NO_SHARD"


class _ManualClassifier(ImageClassifier):
    """Classifier that steps by itself, and clears gradients before the backward pass or after the step."""

    def __init__(self, *, clears_first: bool) -> None:
        super().__init__()
        self.automatic_optimization, self._clears_first = False, clears_first

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:  # type: ignore[override] # Manual optimization returns no loss.
        optimizer = self.optimizers()
        loss = super().training_step(batch, index)
        if self._clears_first:
            optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        if not self._clears_first:
            optimizer.zero_grad()


def _train_manually() -> list[list[float]]:
    losses = []
    for units in (set(UNITS), None):
        for sharding in ("FULL_SHARD", "SHARD_GRAD_OP"):
            for clears_first in (True, False):
                strategy = HPUFSDPStrategy(auto_wrap_policy=units, sharding_strategy=sharding)
                module = _ManualClassifier(clears_first=clears_first)
                losses.append(train(module, make_trainer(strategy=strategy)))
    return losses


def test_manual_optimization_trains_like_one_device(on_ranks: OnRanks, expected: list[float]) -> None:
    """Its backward pass runs inside of the forward pass of the sharded module."""
    for losses in on_ranks(_train_manually)[0]:
        assert losses == pytest.approx(expected, abs=1e-5)


def _train_twice_with_batch_norm() -> list[float]:
    module = ImageClassifier()
    module.net = torch.nn.Sequential(module.net, torch.nn.BatchNorm1d(10))
    for _ in range(2):
        strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS))
        losses = train(module, make_trainer(strategy=strategy, max_steps=3, sync_batchnorm=True))
    return losses


def test_synchronized_batch_norm_trains_again(on_ranks: OnRanks) -> None:
    """Lightning would replace it by one without the sharded parameters."""
    losses = on_ranks(_train_twice_with_batch_norm)[0]

    assert len(losses) == 6
    assert losses[-1] < losses[0]
