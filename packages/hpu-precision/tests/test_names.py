"""The names of op lists and what they stand for."""

import pytest

from hpu_precision._names import nearest, operators
from hpu_precision.op_lists import bridge_names, hmp_names


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
def test_names_of_python_and_of_torch_are_known(name: str, expected: set[str]) -> None:
    """A name stands for torch's operators, be it HMP's or autocast's."""
    assert operators(name) == expected


@pytest.mark.parametrize("name", sorted(bridge_names() | hmp_names()))
def test_the_bridges_names_are_known(name: str) -> None:
    """Every name of the lists that come with a release stands for something in this torch."""
    assert operators(name)


@pytest.mark.parametrize("name", ["liner", "__class__", "name", "_dir", "softmax2", ""])
def test_other_names_are_unknown(name: str) -> None:
    """What is no operator is none, not even an attribute of torch's namespace."""
    assert operators(name) == frozenset()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("liner", "linear"), ("Conv2d", "conv2d"), ("crossentropy", "cross_entropy"), ("zzzzqqq", None)],
)
def test_the_nearest_name_is_suggested(name: str, expected: str | None) -> None:
    """A typing error is recognised, nonsense is not."""
    assert nearest(name) == expected
