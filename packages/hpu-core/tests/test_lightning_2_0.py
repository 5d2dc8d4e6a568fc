"""Tests of the workarounds for Lightning 2.0; `registration/test_by_name.py` runs Lightning 2.0 itself."""

import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import _lightning_2_0, frameworks, hmp
from hpu_core.fabric import FabricSingleHPUStrategy

_Precision: Any = frameworks.current().fabric("plugins").Precision
_NAME = "lightning.pytorch.accelerators.hpu"


@pytest.fixture
def fake_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Lightning that sees a device when it is imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightning"]:
        monkeypatch.delitem(sys.modules, name)
    path = tmp_path.joinpath(*_NAME.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    path.write_text("_HPU_AVAILABLE = True\n")
    for package in list(path.parents)[:3]:
        (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if finder is not _lightning_2_0.hmp_hook])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightning"]:
        del sys.modules[name]


@pytest.mark.usefixtures("fake_lightning")
@pytest.mark.parametrize(("module", "expected"), [(None, False), (ModuleType("hmp"), True)])
def test_lightning_sees_device_only_with_hmp(
    module: ModuleType | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hmp, "load_hmp", lambda: module)
    _lightning_2_0.hmp_hook.install()

    assert vars(importlib.import_module(_NAME))["_HPU_AVAILABLE"] is expected


@pytest.mark.parametrize("content", [{}, {"_HPU_AVAILABLE": False}], ids=["another module", "no device"])
def test_bridge_is_not_loaded_without_device(content: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hmp, "load_hmp", lambda: pytest.fail("loaded the bridge"))
    module = ModuleType(_NAME)
    vars(module).update(content)

    _lightning_2_0.disable_hmp_import(module)

    assert {name: vars(module)[name] for name in content} == content


@pytest.mark.parametrize(("version", "expected"), [("2.0.9", True), ("2.1.0.dev0", False), ("2.1", False)])
def test_rows(version: str, expected: bool) -> None:
    assert _lightning_2_0.applies_to(Version(version)) is expected


class _Strategy(FabricSingleHPUStrategy):
    """Strategy that counts its `backward` calls."""

    def __init__(self) -> None:
        super().__init__(precision=_Precision())
        self.calls = 0
        _lightning_2_0.route_backward_through_strategy(self, self.precision)

    def backward(self, tensor: torch.Tensor, module: torch.nn.Module | None, *args: Any, **kwargs: Any) -> None:
        self.calls += 1
        super().backward(tensor, module, *args, **kwargs)


def _gradient(strategy: _Strategy) -> float:
    value = torch.tensor(3.0, requires_grad=True)
    strategy.precision.backward(value.square(), None)
    assert value.grad is not None
    return value.grad.item()


def test_plugin_calls_strategy_once() -> None:
    strategy = _Strategy()

    assert [(_gradient(strategy), strategy.calls) for _ in range(2)] == [(6.0, 1), (6.0, 2)]


def test_plugin_calls_strategy_after_an_error() -> None:
    strategy = _Strategy()
    with pytest.raises(RuntimeError, match="does not require grad"):
        strategy.precision.backward(torch.tensor(1.0), None)

    _gradient(strategy)

    assert strategy.calls == 2


def test_copy_calls_its_own_strategy() -> None:
    """Spawning launchers pickle strategies."""
    strategy = _Strategy()
    other = pickle.loads(pickle.dumps(strategy))  # noqa: S301 - made in the same line.

    _gradient(other)

    assert (strategy.calls, other.calls) == (0, 1)
