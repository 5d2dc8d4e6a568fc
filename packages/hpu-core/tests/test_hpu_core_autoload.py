"""Tests of the entry point that `import torch` calls."""

import importlib
import importlib.metadata
import logging
import sys
from pathlib import Path

import pytest

import _hpu_core_autoload
import _hpu_core_probe
from hpu_core import registration


@pytest.fixture
def calls(environment: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record of registrations, in a process without a device and Lightning whose list of finders is restored."""
    calls: list[str] = []
    monkeypatch.setattr(_hpu_core_probe, "maybe_has_hpu", lambda: False)
    monkeypatch.setattr(registration, "autoload", lambda: calls.append("autoload"))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delenv(_hpu_core_probe.AUTOLOAD, raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] in _hpu_core_autoload._LIGHTNING]:
        monkeypatch.delitem(sys.modules, name)
    return calls


def _add_module(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / f"{name}.py").touch()
    # `syspath_prepend` lets pkg_resources import its namespace packages, among which are those of Lightning before 2.4.
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    importlib.invalidate_caches()


def test_entry_point_of_torch_is_declared() -> None:
    entries = importlib.metadata.entry_points(group="torch.backends", name="hpu_core")

    assert {entry.load() for entry in entries} == {_hpu_core_autoload.autoload}


def test_device_registers_at_once(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hpu_core_probe, "maybe_has_hpu", lambda: True)
    _hpu_core_autoload.autoload()

    assert calls == ["autoload"]


@pytest.mark.parametrize("name", ["lightning", "pytorch_lightning", "lightning_fabric"])
def test_without_a_device_lightnings_import_registers(
    name: str, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, however often `import torch` was hooked."""
    _add_module(name, tmp_path, monkeypatch)
    finders = list(sys.meta_path)
    _hpu_core_autoload.autoload()
    _hpu_core_autoload.autoload()
    before = list(calls)
    module = __import__(name)

    assert (before, calls) == ([], ["autoload"])
    assert module.__file__ == str(tmp_path / f"{name}.py")
    assert sys.meta_path == finders


def test_lightning_that_imports_torch_registers_at_once(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", sys)
    _hpu_core_autoload.autoload()

    assert calls == ["autoload"]


def test_missing_lightning_is_still_reported(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    _hpu_core_autoload.autoload()
    with pytest.raises(ModuleNotFoundError, match="No module named 'lightning'"):
        __import__("lightning")


def test_variable_disables_the_entry_point(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_hpu_core_probe.AUTOLOAD, "0")
    finders = list(sys.meta_path)
    _hpu_core_autoload.autoload()

    assert (calls, sys.meta_path) == ([], finders)


def test_entry_point_logs_and_does_not_raise(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception would make `import torch` fail."""

    def fail() -> bool:
        raise RuntimeError("no such machine")

    monkeypatch.setattr(_hpu_core_probe, "maybe_has_hpu", fail)
    with caplog.at_level(logging.WARNING):
        _hpu_core_autoload.autoload()

    assert "cannot register HPU with Lightning" in caplog.text
    assert "no such machine" in caplog.text
