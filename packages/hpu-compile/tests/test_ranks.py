"""Compiled training on two simulated cards; the helper functions run on both ranks."""

import os
from typing import Any

import pytest
import torch

from hpu_compile import HPUCompile
from hpu_core import frameworks
from hpu_ddp import HPUDDPStrategy
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy

from .conftest import OnRanks
from .modules import Block, Classifier, fit, make_loader

_Callback: Any = frameworks.current().pytorch("callbacks").Callback


class Sharded(Classifier):
    """Classifier that FSDP2 shards by blocks."""

    def configure_model(self) -> None:
        """Shard the blocks and the rest."""
        from torch.distributed.fsdp import fully_shard

        for block in self.blocks:
            fully_shard(block, mesh=self.device_mesh["data_parallel"])
        for part in (self.stem, self.head):
            fully_shard(part, mesh=self.device_mesh["data_parallel"])


def _strategy(name: str) -> Any:
    if name == "ddp":
        return HPUDDPStrategy()
    if name == "fsdp":
        return HPUFSDPStrategy(auto_wrap_policy={Block}, use_orig_params=True)
    if name == "fsdp2":
        return HPUModelParallelStrategy()
    return HPUDeepSpeedStrategy(stage=int(name[-1]), allgather_bucket_size=10**6, reduce_bucket_size=10**6)


class Keep(_Callback):  # type: ignore[misc] # The class depends on the framework.
    """Keeps this rank's weights."""

    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Copy the weights before the strategy gathers or frees them."""
        parameters = [getattr(each, "_local_tensor", each) for each in pl_module.parameters()]
        self.weights = [each.detach().cpu().clone() for each in parameters]


def _train(strategy: str, *callbacks: Any, **options: Any) -> list[torch.Tensor]:
    keep = Keep()
    module = Sharded() if strategy == "fsdp2" else Classifier()
    loader = make_loader(4, rank=int(os.environ["RANK"]))
    options = {"strategy": _strategy(strategy), "devices": 2, "use_distributed_sampler": False, **options}
    fit(*callbacks, keep, model=module, loader=loader, **options)
    return [*keep.weights, *module.losses]


def _compare(strategy: str) -> tuple[bool, list[dict[str, int]]]:
    """Return whether losses and weights are the same with compilation, and the graphs of each region."""
    torch.set_num_threads(1)
    callback = HPUCompile()
    plain, compiled = _train(strategy), _train(strategy, callback)
    assert callback.report is not None
    equal = all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(plain, compiled, strict=True))
    return equal, [dict(region.graphs) for region in callback.report.regions]


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    "strategy", ["ddp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("fsdp", "fsdp2", "zero1", "zero2"))]
)
def test_training_equals_the_uncompiled_one(strategy: str, on_ranks: OnRanks) -> None:
    """One graph for all blocks, and the same bits."""
    assert on_ranks(_compare, strategy, seconds=240) == [(True, [{"training": 1}])] * 2


def _refuse_accumulation() -> str:
    with pytest.raises(RuntimeError) as error:
        _train("fsdp", HPUCompile(), accumulate_grad_batches=2)
    return str(error.value)


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_accumulation_with_fsdp_is_refused(on_ranks: OnRanks) -> None:
    for text in on_ranks(_refuse_accumulation, seconds=240):
        assert "pass `accumulate_grad_batches=1`" in text
