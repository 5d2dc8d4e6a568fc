"""Tests of the choice of free modules on the simulator."""

from pathlib import Path

import pytest

from hpu_core import discovery


def test_free_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that was returned is no longer free."""
    monkeypatch.setenv("HPU_MODULE_LOCKS", str(tmp_path / "locks"))

    assert discovery.free_modules(2) == (0, 1)
    with pytest.raises(RuntimeError, match="module 0 by pid"):
        discovery.free_modules(1)
