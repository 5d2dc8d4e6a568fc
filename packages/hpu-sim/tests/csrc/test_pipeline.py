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
    """Launch an operator whose arguments pass all checks, and whose kernel fails."""
    return torch.ones(3, device="hpu")[torch.tensor([7], device="hpu")]


def test_an_error_of_a_kernel_is_raised_by_a_later_operator() -> None:
    """Which does not run."""
    x = torch.zeros(2, device="hpu")
    _fail()
    native().wait_for_device()

    with pytest.raises(IndexError, match=_OUT_OF_BOUNDS):
        x.add_(1)
    assert x.tolist() == [0, 0]


def test_an_operator_whose_execution_fails_has_a_result() -> None:
    """Its checks have run, and nothing has written its memory."""
    result = _fail()

    assert (result.shape, result.device.type) == ((1,), "hpu")
    with pytest.raises(IndexError):
        hpu.synchronize()


_JOINS: Final[dict[str, Callable[[], object]]] = {
    "synchronize": hpu.synchronize,
    "item": lambda: torch.zeros(1, device="hpu").item(),
    "compilation": lambda: native().join_pipeline(),
    "event": lambda: hpu.Event().record(),
    "copy to the device": lambda: torch.ones(1).to("hpu"),
    "seed": lambda: torch.manual_seed(0),
}


@pytest.mark.parametrize("join", _JOINS)
def test_a_wait_of_the_host_raises_the_error(join: str) -> None:
    _fail()
    native().wait_for_device()

    with pytest.raises(IndexError, match=_OUT_OF_BOUNDS):
        _JOINS[join]()


def test_the_error_names_its_operator() -> None:
    """Which a card cannot."""
    _fail()

    with pytest.raises(IndexError, match=r"raised late: .* is aten::index; HPU_SIM_STRICT=1 names its line"):
        hpu.synchronize()


@pytest.mark.usefixtures("strict")
def test_the_error_of_a_strict_device_names_the_line_that_launched_its_operator() -> None:
    _fail()

    with pytest.raises(IndexError, match=rf"raised late: .* is aten::index, launched at {__file__}:\d+ \(simulated\)"):
        hpu.synchronize()


def test_a_blocking_device_raises_the_error_where_the_operator_is_launched() -> None:
    """As HPU_SIM_BLOCKING=1 makes it. Its results and those of copies are there at once."""
    native().set_blocking(True)
    try:
        with pytest.raises(IndexError, match=_OUT_OF_BOUNDS):
            _fail()
        event = hpu.Event()
        event.record()
        x = torch.ones(500_000, device="hpu").sort().values
        host = x.to("cpu", non_blocking=True)
    finally:
        native().set_blocking(False)

    assert host.sum() == x.numel()


def test_an_error_is_raised_once() -> None:
    _fail()
    with pytest.raises(IndexError):
        hpu.synchronize()

    assert torch.ones(1, device="hpu").item() == 1


def test_errors_of_arguments_are_raised_by_their_operator() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        torch.ones(3, device="hpu") + torch.ones(4, device="hpu")


def test_running_out_of_memory_is_an_error_of_the_call(leave_memory: Callable[[int], None]) -> None:
    x = torch.ones(3, device="hpu")
    leave_memory(0)

    with pytest.raises(RuntimeError, match=r"^\[Rank:0\] FATAL ERROR :: MODULE:PT_DEVMEM .* failed for size::12 "):
        x.exp()


@pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")
def test_pageable_memory_may_be_overwritten_after_a_copy_that_does_not_block() -> None:
    """The copy has a staging buffer."""
    source = torch.ones(3)
    x = source.to("hpu", non_blocking=True)
    source.fill_(2)

    assert x.tolist() == [1, 1, 1]
