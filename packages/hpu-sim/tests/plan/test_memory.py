"""Memory by module at the peak of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.options import Options

if TYPE_CHECKING:
    from hpu_sim.prediction.recording import Recording

from .programs import bytes_of

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Recording of 3 equal layers, whose activations are larger than their states."""

    def program() -> None:
        layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(3)])
        model = nn.Sequential(layers, nn.Linear(64, 8)).to("hpu")
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            with plan.step():
                model(torch.ones(1024, 64, device="hpu")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

    return record_call(program, Options())


def test_memory_by_module_adds_up_to_the_peak(recording: Recording) -> None:
    memory = memory_plan(recording)

    assert sum(each.bytes for each in memory.modules) == memory.peak_bytes


def test_repeated_modules_are_one_row(recording: Recording) -> None:
    (row,) = (each for each in memory_plan(recording).modules if each.name == "0.*.0")

    assert row.count == 3
    assert row.by_category["parameters"] == 3 * 4 * (64 * 64 + 64)
    assert row.by_category["optimizer state"] == 2 * row.by_category["parameters"]


def test_activations_belong_to_the_module_that_made_them(recording: Recording) -> None:
    rows = {each.name: each for each in memory_plan(recording).modules}

    assert rows["0.*.1"].by_category["activations"] == 3 * 4 * 1024 * 64


@pytest.mark.usefixtures("eager")
def test_storage_that_grows_later_belongs_to_the_module_that_grew_it() -> None:
    """FSDP makes empty storage first, makes it a parameter, and gives it a size then."""

    def program() -> None:
        parameter = nn.Parameter(torch.empty(0, device="hpu"))
        module = nn.Module()
        module.register_parameter("weight", parameter)
        module.forward = lambda inputs: inputs * 2
        with plan.step():
            module(torch.ones(4, device="hpu"))
            parameter.untyped_storage().resize_(4096)

    rows = memory_plan(record_call(program, Options())).modules

    assert sum(each.bytes for each in rows) >= 4096


@pytest.mark.parametrize(("keeps", "copies"), [(False, 2), (True, 3)])
def test_a_graph_has_no_memory_for_a_chain_of_element_wise_operators(keeps: bool, copies: int) -> None:
    """Unless a value of it is still there after the graph: then it is beside the input and the result."""

    def program() -> None:
        values = torch.ones(1 << 20, device="hpu")
        for _ in range(2):
            with plan.step():
                inner = values.exp().neg()
                result = inner.abs()
                if not keeps:
                    del inner
                core.mark_step()
                values.add_(1)
                del result

    from habana_frameworks.torch import core

    recording = record_call(program, Options())

    assert memory_plan(recording).peak_bytes == copies * 4 << 20


@pytest.mark.usefixtures("eager")
def test_in_eager_mode_each_result_takes_memory() -> None:
    def program() -> None:
        values = torch.ones(1 << 20, device="hpu")
        for _ in range(2):
            with plan.step():
                values.exp().neg().abs()

    assert memory_plan(record_call(program, Options())).peak_bytes == 3 * 4 << 20


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("is_fused", "tensors"), [(True, 4), (False, 6)], ids=["fused", "torch"])
def test_a_kernel_of_the_bridge_keeps_its_intermediates(is_fused: bool, tensors: int) -> None:
    """Torch's AdamW holds two beside the parameter, its gradient and its two moments (torch 2.13, one by one)."""
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    def program() -> None:
        parameter = nn.Parameter(torch.zeros(1 << 20, device="hpu"))
        parameter.grad = torch.zeros_like(parameter)
        optimizer = (FusedAdamW if is_fused else torch.optim.AdamW)([parameter])
        for _ in range(2):
            with plan.step():
                optimizer.step()

    assert bytes_of(record_call(program, Options()).steady) >> 20 == 4 * tensors
