"""Tests of the connectors on unknown Lightnings, with two frameworks, and on machines without a device."""

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
from hpu_core.registration import _patch, _replacements
from hpu_core.registration._connectors import FabricConnectorMixin, HPUConnectorMixin, TrainerConnectorMixin

from .programs import output


def _connector(*names: str) -> type:
    """Return a connector with these methods, each of which returns its own name."""
    namespace: dict[str, Any] = {name: lambda self, name=name: name for name in names}
    return type("_AcceleratorConnector", (), {"__module__": "lightning.somewhere", "__init__": _init, **namespace})


def _init(self: Any, **options: Any) -> None:
    self.options = options


def _trainer_connector(connector: type, framework: frameworks.FrameworkName = "lightning") -> Any:
    return _patch.make_replacement(connector, framework, TrainerConnectorMixin)


@pytest.mark.parametrize("mixin", [TrainerConnectorMixin, FabricConnectorMixin])
def test_subclass_has_name_and_signature_of_original(mixin: type) -> None:
    """It is pickled by that name, and Lightning's own tests compare its signature with those of Trainer and Fabric."""
    original = _connector(*HPUConnectorMixin.REQUIRED)
    subclass = _patch.make_replacement(original, "lightning", mixin)

    assert issubclass(subclass, original)
    assert (subclass.__module__, subclass.__qualname__) == ("lightning.somewhere", "_AcceleratorConnector")
    assert inspect.signature(subclass) == inspect.signature(original)


def _refuse(self: object, **_: object) -> None:
    raise RuntimeError("No supported gpu backend found!")


@pytest.mark.parametrize(
    ("accelerator", "has_card", "ends"), [("gpu", True, True), ("gpu", False, False), ("mps", True, False)]
)
def test_error_for_cuda_beside_cards_says_what_to_write(
    accelerator: str, has_card: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "is_available", lambda: has_card)
    original = _connector(*HPUConnectorMixin.REQUIRED)
    monkeypatch.setattr(original, "__init__", _refuse, raising=False)
    with pytest.raises(RuntimeError, match="No supported gpu backend found!") as raised:
        _trainer_connector(original)(accelerator=accelerator)

    assert str(raised.value).endswith("write `accelerator='hpu'`.") == ends


def test_unsupported_connector_stays(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning in the log gives the reason."""
    connector = _connector()
    module = ModuleType("lightning.fabric.connector")
    module._Connector = connector  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with caplog.at_level(logging.WARNING):
        _replacements.patch(module)

    assert module._Connector is connector
    assert "HPU is not registered with lightning: _AcceleratorConnector has no " in caplog.text


@pytest.fixture
def other() -> Any:
    """A Trainer's connector of the framework that this process does not use on HPU."""
    (name,) = (name for name in frameworks.NAMES if name != frameworks.current().name)
    return _trainer_connector(_connector(*HPUConnectorMixin.REQUIRED), name)()


def test_other_framework_cannot_choose_hpu(other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "is_available", lambda: True)

    with pytest.raises(ImportError, match=r"^the Gaudi packages use \w+ in this process, .* set HPU_CORE_FRAMEWORK="):
        other._choose_auto_accelerator()


@pytest.mark.parametrize("flags", [{"accelerator": "hpu"}, {"accelerator": "auto", "strategy": "hpu_ddp"}])
def test_other_framework_cannot_use_hpu_names(flags: dict[str, Any], other: Any) -> None:
    with pytest.raises(ImportError, match="in this process"):
        other._check_config_and_set_final_flags(**flags)


def test_other_framework_works_without_hpu(other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "is_available", lambda: False)
    other.accelerator = object()

    assert other._choose_auto_accelerator() == "_choose_auto_accelerator"
    assert other._choose_strategy() == "_choose_strategy"


def test_unusable_framework_works_without_hpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Lightning that is too old still trains on the CPU."""
    error = ImportError("hpu-core needs lightning 2.0 or newer, got 1.9.5")

    def current() -> SimpleNamespace:
        raise error

    monkeypatch.setattr(frameworks, "current", current)
    monkeypatch.setattr(discovery, "is_available", lambda: True)
    old = _trainer_connector(_connector(*HPUConnectorMixin.REQUIRED))(devices=1)

    assert old.options == {"devices": 1}
    with pytest.raises(ImportError, match=r"got 1\.9\.5"):
        old._choose_auto_accelerator()


def test_error_without_device_points_to_hpu_info(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "is_available", lambda: False)
    trainer = frameworks.current().pytorch().Trainer

    with pytest.raises(
        MisconfigurationException, match=r"`HPUAccelerator` can not run .* `hpu-info` lists where .* `hpu-sim run`"
    ):
        trainer(accelerator=HPUAccelerator(), devices=1, logger=False)


def test_strategy_of_gaudi_without_device_points_to_hpu_info(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning would choose the CPU."""
    monkeypatch.setattr(discovery, "is_available", lambda: False)
    connector = _trainer_connector(_connector(*HPUConnectorMixin.REQUIRED), frameworks.current().name)()

    with pytest.raises(MisconfigurationException, match=r"needs a Gaudi card, and none was found\. `hpu-info` lists"):
        connector._check_config_and_set_final_flags(accelerator="auto", strategy="hpu_single", precision=None)


def test_other_errors_without_device_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(2, "no such file")

    def fail(self: Any) -> None:
        raise error

    monkeypatch.setattr(discovery, "is_available", lambda: False)
    base = _connector(*HPUConnectorMixin.REQUIRED)
    base._set_parallel_devices_and_init_accelerator = fail  # type: ignore[attr-defined]
    connector: Any = _trainer_connector(base, frameworks.current().name)()
    connector._accelerator_flag, connector._devices_flag = "hpu", 1

    with pytest.raises(OSError, match="no such file") as raised:
        connector._set_parallel_devices_and_init_accelerator()

    assert raised.value is error


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in frameworks.NAMES), reason="Requires: both Lightnings"
)
@pytest.mark.skipif(Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends")
def test_two_frameworks_in_one_program(tmp_path: Path) -> None:
    """The first one that uses the device is used, the other one explains why it cannot."""
    program = """
import lightning, pytorch_lightning
print(type(pytorch_lightning.Trainer(accelerator="hpu", logger=False).strategy).__name__)
print(type(lightning.Trainer(accelerator="cpu", logger=False).strategy).__name__)
try:
    lightning.Trainer(accelerator="hpu", logger=False)
except ImportError as error:
    print(error)
"""
    lines = output(program, tmp_path, HPU_SIM_DEVICES="1")

    assert lines[:2] == ["SingleHPUStrategy", "SingleDeviceStrategy"]
    assert lines[2] == (
        "the Gaudi packages use pytorch_lightning in this process, but this Trainer or Fabric is from lightning: "
        "import only one of them, set HPU_CORE_FRAMEWORK=lightning, or pass `accelerator='cpu'` here"
    )
