"""Operators that the bridge has and the CPU lacks, or that differ from the CPU's."""

from __future__ import annotations

import pytest
import torch


def test_an_output_is_resized() -> None:
    output = torch.ops.aten._resize_output_(torch.empty(0, device="hpu"), [2, 3], torch.device("hpu"))

    assert output.shape == (2, 3)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_are_drawn_by_float32(dtype: torch.dtype) -> None:
    x = torch.zeros(100, dtype=dtype, device="hpu")

    assert x.uniform_(3, 7) is x
    assert (x.dtype, int(x.min()) >= 3, int(x.max()) <= 6) == (dtype, True, True)


def test_integers_are_interpolated_by_float32() -> None:
    start, end = torch.tensor([0, 10], device="hpu"), torch.tensor([4, 20], device="hpu")

    assert torch.lerp(start, end, 0.5).tolist() == [2, 15]
    assert torch.lerp(start, end, torch.tensor([2, 0], device="hpu")).tolist() == [8, 10]
    assert start.lerp_(end, 0.5) is start
    assert start.tolist() == [2, 15]


def test_floats_are_drawn_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    expected = torch.empty(5).uniform_()
    torch.manual_seed(0)

    assert torch.equal(torch.empty(5, device="hpu").uniform_().cpu(), expected)


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
