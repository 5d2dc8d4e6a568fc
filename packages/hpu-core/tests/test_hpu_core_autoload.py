"""Tests of the entry point that `import torch` calls."""

import importlib.metadata
import logging
import sys

import pytest

import _hpu_core_autoload
import _hpu_core_probe
from hpu_core import registration


@pytest.fixture
def calls(environment: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record of registrations, in a process on a machine with a device."""
    calls: list[str] = []
    monkeypatch.setattr(_hpu_core_probe, "maybe_has_hpu", lambda: True)
    monkeypatch.setattr(registration, "autoload", lambda: calls.append("autoload"))
    monkeypatch.delenv(_hpu_core_probe.AUTOLOAD, raising=False)
    return calls


def test_entry_point_of_torch_is_declared() -> None:
    entries = importlib.metadata.entry_points(group="torch.backends", name="hpu_core")

    assert {entry.load() for entry in entries} == {_hpu_core_autoload.autoload}


def test_device_registers(calls: list[str]) -> None:
    _hpu_core_autoload.autoload()

    assert calls == ["autoload"]


def test_without_a_device_nothing_is_imported_or_hooked(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `import torch` would pay for it."""
    monkeypatch.setattr(_hpu_core_probe, "maybe_has_hpu", lambda: False)
    monkeypatch.setitem(sys.modules, "hpu_core", None)
    finders = list(sys.meta_path)
    _hpu_core_autoload.autoload()

    assert (calls, sys.meta_path) == ([], finders)


def test_variable_disables_the_entry_point(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_hpu_core_probe.AUTOLOAD, "0")
    _hpu_core_autoload.autoload()

    assert calls == []


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
