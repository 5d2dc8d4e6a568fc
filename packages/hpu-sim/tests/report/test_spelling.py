"""Names of dtypes, shapes and operators."""

from __future__ import annotations

import pytest
import torch

from hpu_sim.report.spelling import DTYPES, difference, dtype_of, operator_of_backward, spell


def test_every_dtype_is_torchs() -> None:
    """So that a reader can look it up."""
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in DTYPES.values() if hasattr(torch, name))
    assert {"float32", "int64", "bfloat16"} <= set(DTYPES.values())


def test_a_dtype_without_a_name_keeps_its_own() -> None:
    """One that a later torch brings."""
    assert spell("Quarter[3, 4]") == "Quarter[3, 4]"
    assert dtype_of("Quarter[3, 4]") == "Quarter"


def test_nothing_has_no_dtype() -> None:
    """A collective without tensors."""
    assert dtype_of("") == ""


@pytest.mark.parametrize(
    ("node", "operator"),
    [("PowBackward0", "Pow"), ("torch::autograd::CopyBackwards", "CopyBackwards"), ("Backward", "Backward")],
)
def test_nodes_are_named_after_their_operator(node: str, operator: str) -> None:
    """Without what every node's name ends in."""
    assert operator_of_backward(node) == operator


def test_another_number_of_inputs_is_shown_in_full() -> None:
    """There is no telling which one was added."""
    assert difference("float32[3]", "float32[3], int64[]") == ("float32[3]", "float32[3], int64[]")
