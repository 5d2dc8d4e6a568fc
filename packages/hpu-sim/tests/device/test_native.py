"""Protocol of the C++ extension."""

from __future__ import annotations

import inspect

import pytest

from hpu_sim.device.native import Native
from hpu_sim.device.runtime import native

_FUNCTIONS = [name for name, _ in inspect.getmembers(Native, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_the_extension_has_what_the_protocol_says(name: str) -> None:
    """The extension defines every function of the protocol."""
    assert callable(getattr(native(), name))


def test_the_protocol_says_what_the_extension_has() -> None:
    """The protocol types every function of the extension."""
    public = [name for name in dir(native()) if not name.startswith("_")]

    assert sorted(public) == sorted(_FUNCTIONS)
