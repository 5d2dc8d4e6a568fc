"""Operators without a kernel on a card."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import torch
from habana_frameworks.torch import hpu

import hpu_sim
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable


def test_it_is_a_host_sync(statistics: Callable[[], dict[str, int]]) -> None:
    x = torch.ones(2, device="hpu")
    hpu_sim.reset_stats()

    torch.digamma(x)

    assert statistics()["host_syncs"] == 1


def test_it_is_in_the_metric_of_cpu_fallbacks() -> None:
    x = torch.ones(2, device="hpu")

    with hpu.metric_localcontext("cpu_fallback") as metric:
        torch.digamma(x)
        torch.igamma(x, x)
        x.digamma_()

    fallbacks = dict(metric.stats())
    assert fallbacks["TotalNumber"] == 3
    assert sum(fallbacks["FallbackOps"].values()) == 3
    assert {name.rstrip("_") for name in fallbacks["FallbackOps"]} == {"aten::digamma", "aten::igamma"}


def test_an_operator_with_a_kernel_on_a_card_is_not() -> None:
    x = torch.ones(2, 2, device="hpu", requires_grad=True)

    with hpu.metric_localcontext("cpu_fallback") as metric:
        torch.mm(x, x).softmax(0).sum().backward()
        torch.lgamma(x.detach())

    assert metric.stats() == [("TotalNumber", 0), ("FallbackOps", {})]


def test_a_listener_gets_the_operator_and_is_called_on_its_line() -> None:
    lines = []
    native().set_listener(lambda kind, op, *_: lines.append((kind, op, sys._getframe(1).f_lineno)))
    x = torch.ones(2, device="hpu")

    torch.digamma(x)
    line = sys._getframe().f_lineno - 1

    native().set_listener(None)
    assert ("cpu_fallback", "aten::digamma", line) in lines


_DIGAMMA: Final = """
import torch
try:
    torch.digamma(torch.ones(1, device="hpu"))
except RuntimeError as error:
    print(error)
"""


def test_the_variable_forbids_cpu_fallbacks(output_of: Callable[..., str]) -> None:
    assert "aten::digamma is not yet supported on HPU." in output_of(
        _DIGAMMA, HPU_SIM_DEVICES="1", PT_HPU_PLACE_ON_CPU="none"
    )
