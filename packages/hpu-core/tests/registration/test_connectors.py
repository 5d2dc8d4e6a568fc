"""Connectors that are made otherwise, frameworks that do not go together, and machines without a card."""

import importlib.util
import inspect
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUAccelerator, discovery, frameworks
from hpu_core._lightning import MisconfigurationException
from hpu_core.registration import _connectors, _swap

from .programs import output


def _connector(*names: str) -> type:
    """Return a connector that has these methods, each of which returns its own name."""
    namespace: dict[str, Any] = {name: lambda self, name=name: name for name in names}
    return type("_AcceleratorConnector", (), {"__module__": "lightning.somewhere", "__init__": _init, **namespace})


def _init(self: Any, **options: Any) -> None:
    self.options = options


@pytest.mark.parametrize("make", [_connectors.for_trainer, _connectors.for_fabric])
def test_the_subclass_takes_the_place_of_the_original(make: Any) -> None:
    """It is found, and pickled, by the original's name."""
    original = _connector(*_connectors.REQUIRED)
    subclass = make(original, "lightning")

    assert issubclass(subclass, original)
    assert (subclass.__module__, subclass.__qualname__) == ("lightning.somewhere", "_AcceleratorConnector")


@pytest.mark.parametrize("make", [_connectors.for_trainer, _connectors.for_fabric])
def test_the_subclass_has_the_originals_parameters(make: Any) -> None:
    """Lightning's own tests compare them with those of the Trainer and of Fabric."""
    original = _connector(*_connectors.REQUIRED)

    assert inspect.signature(make(original, "lightning")) == inspect.signature(original)


@pytest.mark.parametrize("name", _connectors.REQUIRED)
def test_a_connector_without_a_method_is_not_known(name: str) -> None:
    """A Lightning that is made otherwise is better left alone."""
    connector = _connector(*(other for other in _connectors.REQUIRED if other != name))

    with pytest.raises(NotImplementedError, match=rf"^its _AcceleratorConnector has no {name}, as it has on"):
        _connectors.for_trainer(connector, "lightning")


def test_every_decision_is_among_the_required_methods() -> None:
    """What is overridden is checked for."""
    overridden = {name for name in vars(_connectors.Selection) if name.startswith("_") and not name.startswith("__")}
    own = {"_check_strategy_name", "_is_ours", "_refusal"}

    assert overridden - own == set(_connectors.REQUIRED)


def test_an_unknown_connector_stays_where_it_is(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    """A message says why nothing was done."""
    connector = _connector()
    module = ModuleType("lightning.fabric.connector")
    module._Connector = connector  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with caplog.at_level(logging.WARNING):
        _swap.swap(module)

    assert module._Connector is connector
    assert "lightning will not know Gaudi cards by name: its _AcceleratorConnector has no " in caplog.text


@pytest.fixture
def other() -> Any:
    """A Trainer's connector of a framework that this process does not use on Gaudi, made with no arguments."""
    (name,) = (name for name in frameworks.NAMES if name != frameworks.current().name)
    return _connectors.for_trainer(_connector(*_connectors.REQUIRED), name)()


def test_the_other_framework_is_refused_a_card(other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says which one has it, and what to do."""
    monkeypatch.setattr(discovery, "is_available", lambda: True)

    with pytest.raises(ImportError, match=r"^the Gaudi packages use \w+ in this process, .* set HPU_CORE_FRAMEWORK="):
        other._choose_auto_accelerator()


@pytest.mark.parametrize("flags", [{"accelerator": "hpu"}, {"accelerator": "auto", "strategy": "hpu_ddp"}])
def test_the_other_framework_is_refused_our_names(flags: dict[str, Any], other: Any) -> None:
    """Asking by name for what it cannot have gets the same sentence."""
    with pytest.raises(ImportError, match="in this process"):
        other._check_config_and_set_final_flags(**flags)


def test_the_other_framework_keeps_everything_else(other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no card, or none is asked for, it decides as ever."""
    monkeypatch.setattr(discovery, "is_available", lambda: False)
    other.accelerator = object()

    assert other._choose_auto_accelerator() == "_choose_auto_accelerator"
    assert other._choose_strategy() == "_choose_strategy"


def test_a_framework_that_cannot_be_used_keeps_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Lightning that is too old is refused a card, and trains elsewhere."""
    error = ImportError("hpu-core needs lightning 2.0 or newer, found 1.9.5")

    def current() -> SimpleNamespace:
        raise error

    monkeypatch.setattr(frameworks, "current", current)
    monkeypatch.setattr(discovery, "is_available", lambda: True)
    old = _connectors.for_trainer(_connector(*_connectors.REQUIRED), "lightning")(devices=1)

    assert old.options == {"devices": 1}
    with pytest.raises(ImportError, match=r"found 1\.9\.5"):
        old._choose_auto_accelerator()


def test_without_a_card_the_error_points_to_hpu_info(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning says that there is none, and this where to look."""
    monkeypatch.setattr(discovery, "is_available", lambda: False)
    trainer = frameworks.current().pytorch().Trainer

    with pytest.raises(MisconfigurationException, match=r"`HPUAccelerator` can not run .* `hpu-info` shows where"):
        trainer(accelerator=HPUAccelerator(), devices=1, logger=False)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in frameworks.NAMES), reason="Requires: both Lightnings"
)
@pytest.mark.skipif(Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends")
def test_both_frameworks_in_one_program(tmp_path: Path) -> None:
    """The one that has the card is taught, and so is the other that it has not."""
    program = """
import lightning, pytorch_lightning
print(type(lightning.Trainer(accelerator="hpu", logger=False).strategy).__name__)
print(type(pytorch_lightning.Trainer(accelerator="cpu", logger=False).strategy).__name__)
try:
    pytorch_lightning.Trainer(accelerator="hpu", logger=False)
except ImportError as error:
    print(error)
"""
    lines = output(program, tmp_path, HPU_SIM_DEVICES="1")

    assert lines[:2] == ["SingleHPUStrategy", "SingleDeviceStrategy"]
    assert lines[2] == (
        "the Gaudi packages use lightning in this process, and this Trainer or Fabric is pytorch_lightning's: import "
        "one of the two only, set HPU_CORE_FRAMEWORK=pytorch_lightning, or pass `accelerator='cpu'` here"
    )
