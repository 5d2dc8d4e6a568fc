"""Memory beside tensors, and the threshold of what fits."""

from __future__ import annotations

import pytest

from hpu_sim.prediction.hardware import usable_memory
from hpu_sim.prediction.reserve import fitting_bytes, verdict

_GIB = 1 << 30


def test_a_job_that_fills_the_card_with_tensors_does_not_fit() -> None:
    assert verdict(usable_memory("GAUDI2"), usable_memory("GAUDI2")) == "no"


def test_between_the_ends_of_the_reserve_it_is_tight() -> None:
    assert verdict(60 * _GIB, usable_memory("GAUDI2")) == "fits"
    assert verdict(90 * _GIB, usable_memory("GAUDI2")) == "tight"


@pytest.mark.parametrize("generation", ["GAUDI", "GAUDI2", "GAUDI3"])
def test_the_largest_peak_that_fits_is_at_the_threshold(generation: str) -> None:
    largest = fitting_bytes(usable_memory(generation))

    assert verdict(largest, usable_memory(generation)) == "fits"
    assert verdict(largest + 1, usable_memory(generation)) == "tight"


def test_a_small_simulated_card_has_a_small_reserve() -> None:
    usable = usable_memory("GAUDI2", 1 << 20)

    assert verdict(usable * 8 // 10, usable) == "fits"
    assert verdict(usable, usable) == "no"
