"""Imports of the package have no side effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hpu_sim

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAVY = ("torch", "platformdirs", "filelock", "ninja", "click", "subprocess", "tempfile", "json", "habana_frameworks")
_REPORT = f"print(*sorted(set({_HEAVY!r}) & set(sys.modules)))"


def test_importing_the_package_is_cheap(output_of_new_python: Callable[..., str]) -> None:
    """It imports neither torch nor anything that a build needs."""
    assert not output_of_new_python(f"import sys, hpu_sim\n{_REPORT}")


def test_the_check_of_imports_can_fail(output_of_new_python: Callable[..., str]) -> None:
    """The same program detects what a module of the package imports."""
    loaded = output_of_new_python(f"import sys, hpu_sim.device.build\n{_REPORT}").split()

    assert {"platformdirs", "subprocess"} <= set(loaded)


def test_importing_sets_no_variable(output_of_new_python: Callable[..., str]) -> None:
    program = "import os; before = dict(os.environ); import hpu_sim; print(before == dict(os.environ))"

    assert output_of_new_python(program) == "True"


@pytest.mark.parametrize("name", hpu_sim.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(hpu_sim, name) is not None
    assert name in dir(hpu_sim)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'hpu_sim' has no attribute 'nothing'"):
        _ = hpu_sim.nothing
