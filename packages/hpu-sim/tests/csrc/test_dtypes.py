"""Number formats that a card refuses."""

from __future__ import annotations

import pytest
import torch

from hpu_sim.device.counters import leniences


def test_complex_results_pass_and_are_counted() -> None:
    """One run shall tell of all of them, not end at the first."""
    x = torch.randn(8, device="hpu")
    before = leniences().get("complex results", 0)

    spectrum = torch.fft.rfft(x)

    assert spectrum.is_complex()
    assert leniences().get("complex results", 0) > before
    torch.testing.assert_close(torch.fft.irfft(spectrum), x)


_FLOAT8 = pytest.mark.needs_torch("2.1", "float8")


@pytest.mark.parametrize(
    "name", ["float16", *(pytest.param(name, marks=_FLOAT8) for name in ("float8_e4m3fn", "float8_e5m2"))]
)
def test_a_gaudi_2_has_what_the_first_generation_lacks(name: str) -> None:
    dtype = getattr(torch, name)

    assert torch.empty(1, dtype=dtype, device="hpu").dtype == dtype
