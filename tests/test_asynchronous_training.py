"""Trainings on an asynchronous device have the numbers of those whose kernels run at once, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from hpu_compile import HPUCompile
from hpu_ddp import HPUDDPStrategy
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy
from hpu_sim.device.runtime import native
from hpu_testing.modules import Classifier, make_loader, make_trainer
from hpu_testing.process_groups import leave_process_group

if TYPE_CHECKING:
    from hpu_testing import SharedRankPool


class _Classifier(Classifier):
    """Classifier with dropout, which keeps its weights."""

    def __init__(self, *, shards: bool) -> None:
        super().__init__()
        self.net.append(nn.Dropout(0.1))
        self.shards = shards
        self.weights: list[torch.Tensor] = []

    def configure_model(self) -> None:
        """Shard the network, for FSDP2."""
        if self.shards:
            from torch.distributed.fsdp import fully_shard

            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def on_train_end(self) -> None:
        """Copy the weights before the strategy gathers or frees them."""
        parameters = [getattr(each, "_local_tensor", each) for each in self.parameters()]
        self.weights = [each.detach().cpu().clone() for each in parameters]


_ZERO: dict[str, Any] = {"allgather_bucket_size": 10**5, "reduce_bucket_size": 10**5}
_STRATEGIES: dict[str, Any] = {
    "ddp": HPUDDPStrategy,
    "compile": HPUDDPStrategy,
    "fsdp": lambda: HPUFSDPStrategy(auto_wrap_policy={nn.Linear}, use_orig_params=True),
    "fsdp2": HPUModelParallelStrategy,
    "zero2": lambda: HPUDeepSpeedStrategy(stage=2, **_ZERO),
    "zero3": lambda: HPUDeepSpeedStrategy(stage=3, **_ZERO),
}


def _train(name: str) -> list[torch.Tensor]:
    """Return the losses and weights of this rank, on the host."""
    torch.manual_seed(0)
    module = _Classifier(shards=name == "fsdp2")
    callbacks = [HPUCompile()] if name == "compile" else []
    trainer = make_trainer(strategy=_STRATEGIES[name](), max_epochs=2, callbacks=callbacks)
    trainer.fit(module, make_loader(ranks=2))
    return [loss.cpu() for loss in module.losses] + module.weights


def _compare(name: str) -> tuple[int, bool]:
    """Return the number of losses and weights, and whether both trainings have the same."""
    torch.set_num_threads(1)
    now = _train(name)
    native().set_execution_mode("later")
    try:
        later = _train(name)
    finally:
        native().synchronize()
        native().set_execution_mode("now")
    leave_process_group()
    return len(now), all(torch.equal(left, right) for left, right in zip(now, later, strict=True))


@pytest.mark.parametrize(
    ("name", "lazy"),
    [
        ("ddp", True),
        *(pytest.param(name, False, marks=pytest.mark.slow) for name in ("fsdp", "fsdp2", "zero2", "zero3", "compile")),
    ],
)
def test_a_training_has_the_same_numbers(name: str, lazy: bool, ranks: SharedRankPool) -> None:
    for count, are_equal in ranks.call(_compare, name, lazy=lazy, seconds=240):
        assert count > 8
        assert are_equal
