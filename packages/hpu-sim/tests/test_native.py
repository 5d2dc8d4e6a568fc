"""The compiled device as Python sees it."""

from __future__ import annotations

import inspect

import pytest

from hpu_sim import native

_FUNCTIONS = [name for name, _ in inspect.getmembers(native.Native, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_the_extension_has_what_the_protocol_says(name: str) -> None:
    """Each function of the protocol is there to call."""
    assert callable(getattr(native.native(), name))


def test_the_protocol_says_what_the_extension_has() -> None:
    """No function of the extension lacks a type."""
    public = [name for name in dir(native.native()) if not name.startswith("_")]

    assert sorted(public) == sorted(_FUNCTIONS)


def test_without_an_extension_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the device first has to activate it."""
    monkeypatch.setattr(native, "_native", None)

    with pytest.raises(RuntimeError, match=r"not active; set HPU_SIM_DEVICES=1, use `hpu-sim run`"):
        native.native()
