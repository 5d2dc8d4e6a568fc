"""Categories of memory: state of the optimizer, copies of parameters, and buckets of DDP."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.options import Options

from .programs import bytes_of

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")

_WIDTH = 256
_BYTES = 4 * (_WIDTH * _WIDTH + _WIDTH)


def _train(*, autocast: bool = False, ddp: bool = False) -> None:
    model: nn.Module = nn.Linear(_WIDTH, _WIDTH).to("hpu")
    if ddp:
        torch.distributed.init_process_group("hccl")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        with plan.step():
            with torch.autocast("hpu", dtype=torch.bfloat16, enabled=autocast):
                loss = model(torch.ones(4, _WIDTH, device="hpu")).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@pytest.mark.usefixtures("eager")
def test_state_of_the_optimizer_is_counted_as_such_in_the_step_that_makes_it() -> None:
    recording = record_call(_train, Options())

    assert bytes_of(recording.steps[0], "optimizer state") == 2 * _BYTES
    memory = memory_plan(recording)
    assert memory.peak_phase == "optimizer"
    assert memory.at_peak["optimizer state"] >= _BYTES


def test_parameters_that_autocast_casts_are_copies_of_parameters() -> None:
    recording = record_call(lambda: _train(autocast=True), Options())

    assert bytes_of(recording.steady, "parameters", "forward") == _BYTES + _BYTES // 2


def test_buckets_of_ddp_are_communication_buffers() -> None:
    recording = record_call(lambda: _train(ddp=True), Options(devices=2))

    assert bytes_of(recording.steps[0], "communication buffers") >= _BYTES
