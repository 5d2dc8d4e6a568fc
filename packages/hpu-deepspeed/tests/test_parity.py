"""Every stage of ZeRO gives, step by step, the losses of plain data parallelism."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hpu_core import collectives
from hpu_deepspeed import HPUDeepSpeedStrategy

from .conftest import OnRanks
from .modules import (
    BUCKET,
    COUNTS_IDLE_STEP,
    HAS_NVME,
    NETS,
    Classifier,
    loader,
    loss_of,
    numbers,
    on_nvme,
    trainer,
    whatever_its_size,
)

BATCHES = 12
# Small, so that the last digit of a gradient, by whose sign Adam goes, does not decide where the training goes.
LR = 0.002

STAGES: dict[str, dict[str, Any]] = {
    "0": {"stage": 0},
    "1": {"stage": 1},
    "2": {"stage": 2},
    "3": {"stage": 3},
    "2-offload": {"stage": 2, "offload_optimizer": True},
    "3-offload": {"stage": 3, "offload_optimizer": True, "offload_parameters": True},
    # Its options name a folder.
    **({"3-nvme": {}} if HAS_NVME else {}),
}


def _plain(net: str, dtype: torch.dtype, *, idle: bool = False) -> list[float]:
    """Train with torch's own DistributedDataParallel and Adam, whose weights are of 32 bit whatever the module's.

    Args:
        net: Which.
        dtype: Of the module.
        idle: Whether Adam counts a step without gradients before the first.
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
        loss = loss_of(replica, tuple(part.to("hpu") for part in batch))
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
    return numbers(losses)


def _curve(net: str, precision: str, options: dict[str, Any]) -> list[float]:
    module = Classifier(net, LR)
    run = trainer(HPUDeepSpeedStrategy(reduce_bucket_size=BUCKET, **options), precision=precision)
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    return numbers(module.losses)


def _curves(folder: str) -> "Curves":
    """Return the losses of each step, averaged over the ranks, by net, precision and stage."""
    curves = {}
    for net in NETS:
        for precision in ("32-true", "bf16-mixed"):
            for stage, options in STAGES.items():
                with whatever_its_size():
                    curves[net, precision, stage] = _curve(net, precision, options or on_nvme(folder))
        # After the others, whose process group it uses.
        curves[net, "32-true", "plain"] = _plain(net, torch.float32)
        curves[net, "bf16-mixed", "plain"] = _plain(net, torch.bfloat16)
        curves[net, "bf16-mixed", "plain-idle"] = _plain(net, torch.bfloat16, idle=True)
    return curves


Curves = dict[tuple[str, str, str], list[float]]


@pytest.fixture(scope="module")
def curves(on_ranks: OnRanks, tmp_path_factory: pytest.TempPathFactory) -> Curves:
    """The losses of all trainings; both ranks have the same, since they are averages."""
    first, second = on_ranks(_curves, str(tmp_path_factory.mktemp("disk")))
    assert first == second
    return dict(first)


@pytest.mark.parametrize("net", NETS)
def test_plain_training_learns(net: str, curves: Curves) -> None:
    """What the stages are compared with is a training, and not a constant."""
    losses = curves[net, "32-true", "plain"]

    assert len(losses) == BATCHES
    assert losses[-1] < losses[0] * 0.98


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("net", NETS)
def test_a_stage_trains_like_plain_data_parallelism(net: str, stage: str, curves: Curves) -> None:
    """In 32 bit, each step's loss is that of DistributedDataParallel, to float32's tolerance."""
    assert curves[net, "32-true", stage] == pytest.approx(curves[net, "32-true", "plain"], abs=1e-5)


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "0"])
@pytest.mark.parametrize("net", NETS)
def test_a_stage_trains_in_bf16_like_plain_data_parallelism(net: str, stage: str, curves: Curves) -> None:
    """So it is in mixed precision, to bfloat16's tolerance, with an optimizer of 32 bit behind both."""
    assert curves[net, "bf16-mixed", stage] == pytest.approx(curves[net, "bf16-mixed", "plain"], abs=5e-3)


@pytest.mark.parametrize("net", NETS)
def test_stage_0_counts_its_own_steps_in_bf16(net: str, curves: Curves) -> None:
    """It is the same; only that DeepSpeed's optimizer since 0.17.6 has Adam count a step without gradients first."""
    plain, idle = curves[net, "bf16-mixed", "plain"], curves[net, "bf16-mixed", "plain-idle"]
    expected = idle if COUNTS_IDLE_STEP else plain

    assert idle != pytest.approx(plain, abs=5e-3)
    assert curves[net, "bf16-mixed", "0"] == pytest.approx(expected, abs=5e-3)
