"""Strict mode: what a card refuses or does otherwise, shown at the line of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import torch
from habana_frameworks.torch.hpex.kernels import FusedSDPA

from hpu_sim.device.counters import leniences
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable

_COMPLEX: Final = "Complex datatype is not supported on HPU device."

_COMPLEX_CALLS: Final[dict[str, Callable[[torch.Tensor], object]]] = {
    "complex": lambda x: torch.complex(x, x),
    "fft": torch.fft.fft,
    "eigvals": torch.linalg.eigvals,
    "empty": lambda x: torch.empty(3, dtype=torch.complex64, device=x.device),
    "cast": lambda x: x.to(torch.complex64),
    "copy": lambda x: torch.ones(3, dtype=torch.complex64).to(x.device),
}


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("call", _COMPLEX_CALLS)
def test_complex_dtypes_are_refused(call: str) -> None:
    with pytest.raises(RuntimeError, match=_COMPLEX):
        _COMPLEX_CALLS[call](torch.eye(3, device="hpu"))


@pytest.mark.usefixtures("strict")
def test_a_result_is_contiguous_whatever_the_strides_of_its_inputs() -> None:
    """So that a `view` fails that fails on a card."""
    x = torch.ones(3, 4, device="hpu").t()

    y = x + 1

    assert y.is_contiguous()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        y.t().view(-1)


@pytest.mark.usefixtures("strict")
def test_a_clone_keeps_the_channels_last_and_no_other_strides() -> None:
    x = torch.ones(2, 3, 4, 5, device="hpu").contiguous(memory_format=torch.channels_last)

    assert x.clone().is_contiguous(memory_format=torch.channels_last)
    assert torch.ones(3, 4, device="hpu").t().clone().is_contiguous()


def test_strides_of_results_are_the_cpus_outside_of_strict_mode() -> None:
    """And counted."""
    before = leniences().get("results with other strides", 0)

    assert (torch.ones(3, 4, device="hpu").t() + 1).stride() == (1, 4)
    assert leniences().get("results with other strides", 0) == before + 1


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("function", [torch.empty_like, torch.Tensor.double], ids=["empty_like", "to"])
def test_what_torch_makes_of_empty_strided_keeps_its_strides(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The bridge has a kernel of that, and none of `empty_like` and `_to_copy`."""
    assert function(torch.ones(3, 4, device="hpu").t()).stride() == (1, 4)


@pytest.mark.usefixtures("strict")
@pytest.mark.needs_torch("2.9", "way for a device to choose the algorithm of attention")
def test_attention_takes_the_plain_algorithm() -> None:
    """The bridge has no fused kernel but that of FusedSDPA."""
    inputs = [torch.randn(1, 2, 5, 8, device="hpu") for _ in range(3)]
    native().start_device_trace()
    torch.nn.functional.scaled_dot_product_attention(inputs[0], inputs[1], inputs[2])
    events = native().stop_device_trace()

    names = {event[1] for event in events}
    assert "aten::_softmax" in names or "aten::_safe_softmax" in names
    assert not any("flash" in name for name in names)


@pytest.mark.usefixtures("strict")
@pytest.mark.needs_torch("2.9", "way for a device to choose the algorithm of attention")
@pytest.mark.parametrize("recomputes", [True, False])
def test_fused_attention_keeps_no_scores_if_it_recomputes(recomputes: bool) -> None:
    inputs = [torch.randn(1, 2, 64, 8, device="hpu") for _ in range(3)]
    native().reset_peak_memory()
    before = native().memory_stats()["in_use"]
    with torch.hpu.sdp_kernel(enable_recompute=recomputes):  # type: ignore[attr-defined] # the bridge registers it
        FusedSDPA.apply(*inputs)

    scores = 2 * 64 * 64 * 4
    assert (native().memory_stats()["max_in_use"] - before < scores) == recomputes
