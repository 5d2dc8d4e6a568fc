"""Tests of the peak FLOP/s of the devices."""

import pytest
import torch

from hpu_core import discovery, throughput


@pytest.mark.parametrize(
    ("generation", "dtype", "expected"),
    [
        ("GAUDI2", torch.bfloat16, 432e12),
        ("GAUDI3", torch.bfloat16, 1835e12),
        ("GAUDI3", torch.float16, 459e12),
        ("GAUDI3", torch.float32, 229e12),
        ("GAUDI", torch.bfloat16, 60e12),
        ("GAUDI2", torch.float32, None),
        ("GAUDI", torch.float32, None),
        ("GAUDI4", torch.bfloat16, None),
    ],
)
def test_peak_flops(generation: str, dtype: torch.dtype, expected: float | None) -> None:
    assert throughput.peak_flops(generation, dtype) == expected


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_types_have_the_same_peak(name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip("Requires: torch 2.1, which has types of 8 bits")

    assert throughput.peak_flops("GAUDI2", dtype) == 865e12


@pytest.mark.parametrize(("generation", "expected"), [("GAUDI3", 1835e12), (None, None)])
def test_peak_flops_of_machine(generation: str | None, expected: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "device_name", lambda: generation)

    assert throughput.peak_flops_of_machine(torch.bfloat16) == expected
