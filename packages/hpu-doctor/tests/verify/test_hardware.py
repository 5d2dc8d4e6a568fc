"""Tests of the programs that only a card can show; those that need a driver are in test_discovery.py."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hpu_core import bridge
from hpu_doctor.verify import register
from hpu_doctor.verify.assumption import holds

if TYPE_CHECKING:
    from pathlib import Path


def is_shown(name: str) -> bool:
    """Return whether an assumption holds by its program."""
    assumption = register.find(name)
    return holds(assumption.expected, assumption.program())


@pytest.mark.parametrize(("offset", "shown"), [(0, True), (1, False)])
def test_required_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, shown: bool) -> None:
    major, minor, *_ = torch.__version__.split(".")
    (tmp_path / "required_version.txt").write_text(f"{major}.{int(minor) + offset}.0\n", encoding="utf-8")
    loaded: Any = types.SimpleNamespace(__file__=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(bridge, "load", lambda: loaded)

    assert is_shown("torch-version-is-required") is shown
