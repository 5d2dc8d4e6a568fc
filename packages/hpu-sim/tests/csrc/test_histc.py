"""Histograms on the card."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_integers_are_counted(dtype: torch.dtype) -> None:
    """As accelerators do and the CPU does not; the counts are integers, too."""
    experts = torch.tensor([0, 1, 1, 3], dtype=dtype, device="hpu")

    counts = torch.histc(experts, bins=4, min=0, max=3)

    assert (counts.tolist(), counts.dtype, counts.device.type) == ([1, 2, 0, 1], dtype, "hpu")


def test_a_histogram_is_the_cpus() -> None:
    """Between the least and the largest number, where none is named."""
    numbers = torch.linspace(-3, 5, 40)

    assert torch.equal(torch.histc(numbers.to("hpu"), bins=7).cpu(), torch.histc(numbers, bins=7))
