"""Tests of names in op lists and their operators."""

import pytest

from hpu_precision._op_names import operators
from hpu_precision.op_lists import names_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linear", {"linear"}),
        ("cross_entropy", {"cross_entropy_loss"}),
        ("cross_entropy_loss", {"cross_entropy_loss"}),
        ("truediv", {"div", "true_divide"}),
        ("iadd", {"add_"}),
    ],
)
def test_names_of_hmp_and_autocast(name: str, expected: set[str]) -> None:
    assert operators(name) == expected


def test_names_of_the_bridge_and_hmp_exist_in_torch() -> None:
    names = frozenset().union(*map(names_of, ("lower", "fp32", "promote", "hmp")))

    assert [name for name in names if not operators(name)] == []


@pytest.mark.parametrize("name", ["liner", "__class__", "name", "_dir", "softmax2", "", "conv2d relu", "\0"])
def test_other_names_are_unknown(name: str) -> None:
    """Attributes of the namespace that are not operators are unknown as well."""
    assert operators(name) == frozenset()
