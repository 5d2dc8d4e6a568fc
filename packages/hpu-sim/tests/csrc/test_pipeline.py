"""Late errors of the eager pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import torch
from habana_frameworks.torch import hpu

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("pipelined")

_OUT_OF_BOUNDS: Final = "index 7 is out of bounds"


def _fail() -> torch.Tensor:
    """Launch an operator whose arguments pass all checks, and whose execution fails."""
    return torch.ones(3, device="hpu")[torch.tensor([7], device="hpu")]


def test_an_error_of_an_execution_is_raised_by_the_third_operator_after_it() -> None:
    """The operators between are lost."""
    x = torch.zeros(2, device="hpu")
    _fail()
    x.add_(1)
    x.add_(1)

    with pytest.raises(IndexError, match=_OUT_OF_BOUNDS):
        x.add_(1)
    assert x.tolist() == [0, 0]


def test_a_lost_operator_has_a_result() -> None:
    """Its checks have run, and nothing has written its memory."""
    result = _fail()

    assert (result.shape, result.device.type) == ((1,), "hpu")
    with pytest.raises(IndexError):
        hpu.synchronize()


_JOINS: Final[dict[str, Callable[[], object]]] = {
    "synchronize": hpu.synchronize,
    "item": lambda: native().join_pipeline(),
    "copy to the device": lambda: torch.ones(1).to("hpu"),
    "seed": lambda: torch.manual_seed(0),
}


@pytest.mark.parametrize("join", _JOINS)
def test_a_wait_of_the_host_raises_the_error(join: str) -> None:
    _fail()

    with pytest.raises(IndexError, match=_OUT_OF_BOUNDS):
        _JOINS[join]()


def test_the_error_names_its_operator_and_the_line_that_launched_it() -> None:
    """Which a card cannot."""
    _fail()

    with pytest.raises(IndexError, match=rf"raised late: .* is aten::index, launched at {__file__}:\d+ \(simulated\)"):
        hpu.synchronize()


def test_an_error_is_raised_once() -> None:
    _fail()
    with pytest.raises(IndexError):
        hpu.synchronize()

    assert torch.ones(1, device="hpu").item() == 1


def test_errors_of_arguments_are_raised_by_their_operator() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        torch.ones(3, device="hpu") + torch.ones(4, device="hpu")


def test_running_out_of_memory_is_late() -> None:
    x = torch.ones(3, device="hpu")
    native().fail_allocation(1)
    x.exp()

    with pytest.raises(
        RuntimeError, match=r"^\[Rank:0\] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::12 "
    ):
        x.cpu()


def test_lazy_mode_has_no_pipeline(request: pytest.FixtureRequest) -> None:
    """Errors are raised by their operator."""
    del request
    from hpu_sim.device import runtime

    machine = runtime.active_config()
    native().configure(machine.devices, True, machine.memory_bytes, runtime.acquire_device)

    with pytest.raises(IndexError):
        _fail()


@pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")
def test_pageable_memory_may_be_overwritten_after_a_copy_that_does_not_block() -> None:
    """The copy has a staging buffer."""
    source = torch.ones(3)
    x = source.to("hpu", non_blocking=True)
    source.fill_(2)

    assert x.tolist() == [1, 1, 1]
