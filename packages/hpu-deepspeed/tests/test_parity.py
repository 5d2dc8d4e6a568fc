"""Tests that every ZeRO stage has the losses of DistributedDataParallel, step by step."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hpu_core import collectives
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import (
    ADAM_STEPS_BEFORE_FIRST,
    BUCKET_SIZE,
    NETS,
    SUPPORTS_NVME,
    Classifier,
    compute_loss,
    loader,
    no_min_aio_size,
    nvme_options,
    trainer,
)

BATCHES = 12
# Each net in one precision: the stages are the same for both.
PRECISIONS = {"mlp": ("bf16-mixed", torch.bfloat16), "transformer": ("32-true", torch.float32)}
# Small, because Adam's first steps depend on the sign of the gradient, which rounding can flip near zero.
LR = 0.002

STAGES: dict[str, dict[str, Any]] = {
    "0": {"stage": 0},
    "1": {"stage": 1},
    "2": {"stage": 2},
    "3": {"stage": 3},
    "2-offload": {"stage": 2, "offload_optimizer": True},
    "3-offload": {"stage": 3, "offload_optimizer": True, "offload_parameters": True},
    # The options depend on a temporary directory, see `_curves`.
    **({"3-nvme": {}} if SUPPORTS_NVME else {}),
}


def _plain(net: str, dtype: torch.dtype, *, idle: bool = False) -> list[float]:
    """Train with torch's DistributedDataParallel and Adam on float32 master weights; return the losses.

    Args:
        net: Key in `NETS`.
        dtype: Dtype of the module.
        idle: Whether to run an Adam step with zero gradients before the first batch.
    """
    module = NETS[net]().to("hpu", dtype)
    replica = DistributedDataParallel(module)
    masters = [parameter.detach().float().requires_grad_() for parameter in module.parameters()]
    optimizer = torch.optim.Adam(masters, lr=LR)
    if idle:
        for master in masters:
            master.grad = torch.zeros_like(master)
        optimizer.step()
    losses = []
    for batch in loader(dist.get_rank(), dist.get_world_size(), BATCHES):
        loss = compute_loss(replica, tuple(part.to("hpu") for part in batch))
        module.zero_grad()
        loss.backward()
        with torch.no_grad():
            for master, parameter in zip(masters, module.parameters(), strict=True):
                assert parameter.grad is not None
                master.grad = parameter.grad.float()
            optimizer.step()
            for master, parameter in zip(masters, module.parameters(), strict=True):
                parameter.copy_(master)
        losses.append(collectives.all_reduce(loss.detach().clone(), None, "mean"))
    return to_floats(losses)


def _curve(net: str, precision: str, options: dict[str, Any]) -> list[float]:
    module = Classifier(net, LR)
    run = trainer(HPUDeepSpeedStrategy(reduce_bucket_size=BUCKET_SIZE, **options), precision=precision)
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    return to_floats(module.losses)


def _curves(folder: str) -> "Curves":
    """Return the losses of each step by net and stage."""
    curves = {}
    for net, (precision, dtype) in PRECISIONS.items():
        for stage, options in STAGES.items():
            with no_min_aio_size():
                curves[net, stage] = _curve(net, precision, options or nvme_options(folder))
        # Last, because these use the process group that a strategy has created.
        curves[net, "plain"] = _plain(net, dtype)
    curves["mlp", "plain-idle"] = _plain("mlp", torch.bfloat16, idle=True)
    return curves


Curves = dict[tuple[str, str], list[float]]


@pytest.fixture(scope="module")
def curves(on_ranks: OnRanks, tmp_path_factory: pytest.TempPathFactory) -> Curves:
    """Return the losses of all trainings, which are averages over the ranks."""
    first, second = on_ranks(_curves, str(tmp_path_factory.mktemp("disk")))
    assert first == second
    return dict(first)


@pytest.mark.parametrize("stage", STAGES)
def test_float32_losses_equal_ddp(stage: str, curves: Curves) -> None:
    assert curves["transformer", stage] == pytest.approx(curves["transformer", "plain"], abs=1e-5)


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "0"])
def test_bf16_losses_equal_ddp(stage: str, curves: Curves) -> None:
    """Both keep float32 master weights; the tolerance is bfloat16's."""
    assert curves["mlp", stage] == pytest.approx(curves["mlp", "plain"], abs=5e-3)


def test_stage_0_runs_an_idle_step_in_bf16(curves: Curves) -> None:
    """Since 0.17.6, DeepSpeed's optimizer runs an Adam step with zero gradients before the first batch."""
    plain, idle = curves["mlp", "plain"], curves["mlp", "plain-idle"]
    expected = idle if ADAM_STEPS_BEFORE_FIRST else plain

    assert idle != pytest.approx(plain, abs=5e-3)
    assert curves["mlp", "0"] == pytest.approx(expected, abs=5e-3)
