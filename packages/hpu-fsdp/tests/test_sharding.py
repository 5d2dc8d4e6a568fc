"""Losses with every strategy and those of data parallelism: 50 steps in float32, and fewer in bfloat16."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from hpu_core import frameworks
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy

from .conftest import OnRanks
from .modules import UNITS, ImageClassifier, make_loader, make_trainer, train, train_on_one_device

_precision = frameworks.current().pytorch("plugins.precision")

STEPS = 50
BF16_STEPS = {"perceptron": 10, "transformer": 4}
NETWORKS = ("perceptron", "transformer")
FSDP: dict[str, dict[str, Any]] = {
    "FULL_SHARD": {},
    "SHARD_GRAD_OP": {"sharding_strategy": "SHARD_GRAD_OP"},
    "NO_SHARD": {"sharding_strategy": "NO_SHARD"},
    "HYBRID_SHARD": {"sharding_strategy": "HYBRID_SHARD", "device_mesh": "2 replicas"},
    "cpu_offload": {"cpu_offload": True},
}


class Sharded(ImageClassifier):
    """Classifier that shards itself over both dimensions of the mesh."""

    mp_policy = MixedPrecisionPolicy()
    _is_sharded = False

    def configure_model(self) -> None:
        """Shard the network, once."""
        if self._is_sharded:
            return
        self._is_sharded = True
        data, tensor = self.device_mesh["data_parallel"], self.device_mesh["tensor_parallel"]
        if tensor.size() > 1:
            parallelize_module(self.net, tensor, self._plan())
        if data.size() > 1:
            units: list[torch.nn.Module] = [part for part in self.net.modules() if type(part) in UNITS]
            for unit in units:
                fully_shard(unit, mesh=data, reshard_after_forward=False, mp_policy=self.mp_policy)
            fully_shard(self.net, mesh=data, reshard_after_forward=False, mp_policy=self.mp_policy)

    def _plan(self) -> dict[str, Any]:
        if isinstance(self.net, torch.nn.Sequential):
            return {"0": ColwiseParallel(), "2": RowwiseParallel()}
        plan: dict[str, Any] = {}
        for index in range(len(self.net.layers)):
            plan |= {f"layers.{index}.linear1": ColwiseParallel(), f"layers.{index}.linear2": RowwiseParallel()}
        return plan


class ShardedBf16(Sharded):
    """Sharded classifier whose gathered parameters and reduced gradients are in bfloat16."""

    mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)


def _train_with_ddp(network: str, ranks: int) -> list[float]:
    """Return the losses of data parallelism."""
    if ranks == 1:
        return train_on_one_device(network, STEPS)
    return train(ImageClassifier(network), make_trainer(strategy="hpu_ddp", devices=ranks, max_steps=STEPS))


def _train_all(network: str, ranks: int) -> dict[str, tuple[int, list[float]]]:
    """Return the number of data-parallel ranks and the losses of every strategy."""
    losses: dict[str, tuple[int, list[float]]] = {}
    for name, options in FSDP.items():
        mesh = {"device_mesh": (2, ranks // 2)} if "device_mesh" in options else {}
        if mesh and ranks < 4:
            continue
        strategy: Any = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), **{**options, **mesh})
        trainer = make_trainer(strategy=strategy, devices=ranks, max_steps=STEPS)
        losses[name] = (ranks, train(ImageClassifier(network), trainer))
    for tensor in (1, 2):
        if ranks % tensor:
            continue
        data = ranks // tensor
        if ranks == 1:
            continue
        strategy = HPUModelParallelStrategy(data, tensor)
        trainer = make_trainer(strategy=strategy, devices=ranks, max_steps=STEPS)
        module = Sharded(network)
        trainer.fit(module, make_loader(trainer.global_rank // tensor, data))
        reduced = strategy.reduce(torch.stack(module.losses), reduce_op="mean")
        losses[f"FSDP2 {data} x TP {tensor}"] = (data, [float(loss) for loss in reduced])
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("network", NETWORKS)
def test_every_strategy_trains_like_data_parallelism(
    network: str, ranks: int, on_ranks: OnRanks, record_property: Callable[[str, object], None]
) -> None:
    """The losses of 50 steps are within 1e-5 of those of DDP with as many shards of the data, in float32."""
    shards = {ranks, max(ranks // 2, 1)}
    expected = {count: on_ranks(_train_with_ddp, network, count, count=count, seconds=120)[0] for count in shards}
    for losses in on_ranks(_train_all, network, ranks, count=ranks, seconds=280):
        worst = {
            name: max(abs(a - b) for a, b in zip(found, expected[count], strict=True))
            for name, (count, found) in losses.items()
        }
        for name, value in worst.items():
            record_property(name, f"{value:.1e}")
        assert max(worst.values()) < 1e-5
    assert expected[ranks][-1] < expected[ranks][0]


def _train_in_bf16(network: str) -> list[tuple[str, list[float], list[float]]]:
    """Return the name, the losses, and the losses of data parallelism, of each strategy and precision."""

    def fit(strategy: Any, module: ImageClassifier | None = None, **options: Any) -> list[float]:
        trainer = make_trainer(strategy=strategy, max_steps=BF16_STEPS[network], **options)
        return train(module or ImageClassifier(network), trainer)

    def fsdp() -> HPUFSDPStrategy:
        return HPUFSDPStrategy(auto_wrap_policy=set(UNITS))

    # Lightning's plugins, because hpu-fsdp does not need hpu-precision.
    mixed = fit("hpu_ddp", plugins=[_precision.MixedPrecision("bf16-mixed", "hpu")])
    true = fit("hpu_ddp", plugins=[_precision.HalfPrecision("bf16-true")])
    return [
        ("FSDP, bf16-mixed", fit(fsdp(), precision="bf16-mixed"), mixed),
        ("FSDP, bf16-true", fit(fsdp(), precision="bf16-true"), true),
        ("FSDP2, policy", fit(HPUModelParallelStrategy(2, 1), ShardedBf16(network)), mixed),
        (
            "FSDP2, bf16-true",
            fit(HPUModelParallelStrategy(2, 1), Sharded(network), plugins=[_precision.HalfPrecision("bf16-true")]),
            true,
        ),
    ]


@pytest.mark.parametrize("network", [pytest.param("perceptron", marks=pytest.mark.slow), "transformer"])
def test_bf16_trains_like_data_parallelism_in_bf16(network: str, on_ranks: OnRanks) -> None:
    """Losses differ by less than bfloat16's rounding error, relative to the loss."""
    rounding_error = torch.finfo(torch.bfloat16).eps / 2
    for results in on_ranks(_train_in_bf16, network, seconds=150):
        for name, losses, expected in results:
            assert losses == pytest.approx(expected, rel=rounding_error), name
            assert losses[-1] < losses[0], name
