"""What a card can compute at most."""

import pytest
import torch

from hpu_core import discovery, throughput


@pytest.mark.parametrize(
    ("generation", "dtype", "expected"),
    [
        ("GAUDI2", torch.bfloat16, 432e12),
        ("GAUDI3", torch.bfloat16, 1835e12),
        ("GAUDI2", torch.float32, None),
        ("GAUDI", torch.bfloat16, None),
    ],
)
def test_the_peak_is_the_vendors(generation: str, dtype: torch.dtype, expected: float | None) -> None:
    """By generation and type; None where none has been published."""
    assert throughput.peak_flops(generation, dtype) == expected


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_each_float8_has_the_same_peak(name: str) -> None:
    """The vendor does not tell them apart."""
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip("Requires: torch 2.1, which has types of 8 bits")

    assert throughput.peak_flops("GAUDI2", dtype) == 865e12


@pytest.mark.parametrize(("generation", "expected"), [("GAUDI3", 1835e12), (None, None)])
def test_the_machine_has_its_cards_peak(
    generation: str | None, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whatever generation is found; None without a card."""
    monkeypatch.setattr(discovery, "device_name", lambda: generation)

    assert throughput.peak_flops_of_machine(torch.bfloat16) == expected
