"""Table of the operators that have a kernel on a card."""

from __future__ import annotations

import pytest

from hpu_sim.data import op_support


@pytest.mark.parametrize(
    ("generation", "dtypes"),
    [("GAUDI", {"BFloat16", "Float"}), ("GAUDI2", {"BFloat16", "Float", "Half", "Float8_e5m2", "Float8_e4m3fn"})],
)
def test_dtypes_depend_on_the_generation(generation: str, dtypes: set[str]) -> None:
    assert op_support.device_dtypes(generation)["mm"] == dtypes


@pytest.mark.parametrize("operator", ["relu", "embedding"])
def test_dtypes_that_the_table_does_not_name_are_unknown(operator: str) -> None:
    assert operator not in op_support.device_dtypes("GAUDI2")


@pytest.mark.parametrize(
    ("operator", "eager", "lazy"),
    [("add", True, True), ("_allgather_base", False, True), ("digamma", False, False), ("_fused_adamw", True, True)],
)
def test_support_depends_on_the_mode(operator: str, eager: bool, lazy: bool) -> None:
    found = [operator in op_support.device_operators(lazy=mode) for mode in (False, True)]

    assert found == [eager, lazy]
