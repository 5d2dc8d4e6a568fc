"""Table of the operators that have a kernel on a card."""

from __future__ import annotations

import pytest

from hpu_sim import op_support


@pytest.mark.parametrize(
    ("operator", "eager", "lazy"),
    [("add", True, True), ("_allgather_base", False, True), ("digamma", False, False), ("_fused_adamw", True, True)],
)
def test_support_depends_on_the_mode(operator: str, eager: bool, lazy: bool) -> None:
    found = [operator in op_support.device_operators(lazy=mode) for mode in (False, True)]

    assert found == [eager, lazy]
