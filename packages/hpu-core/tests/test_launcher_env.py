"""Tests of the variables of launchers."""

import pytest

from hpu_core.launcher_env import parse_int


@pytest.mark.parametrize(
    ("text", "expected"), [("12", 12), ("-1", None), ("", None), ("\u0663", None), ("9" * 5000, None)]
)
def test_parse_int(text: str, expected: int | None) -> None:
    assert parse_int(text) == expected
