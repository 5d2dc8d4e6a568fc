"""Tests of HPUAccelerator."""

import inspect
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hpu_core import HPUAccelerator, bridge, discovery, frameworks
from hpu_core._lightning import Accelerator, MisconfigurationException

if TYPE_CHECKING:
    from conftest import FakeBridge


@pytest.mark.parametrize("name", sorted(Accelerator.__abstractmethods__))
def test_signatures_match_lightning(name: str) -> None:
    ours, theirs = (inspect.getattr_static(cls, name) for cls in (HPUAccelerator, Accelerator))

    assert isinstance(ours, staticmethod) == isinstance(theirs, staticmethod)
    assert list(inspect.signature(getattr(HPUAccelerator, name)).parameters) == list(
        inspect.signature(getattr(Accelerator, name)).parameters
    )


@pytest.mark.usefixtures("fake_bridge")
def test_other_device_is_rejected() -> None:
    """Lightning from 2.5.6 on selects a CPU strategy."""
    with pytest.raises(MisconfigurationException, match=r"Device should be HPU, got cpu instead: .*SingleHPUStrategy"):
        HPUAccelerator().setup_device(torch.device("cpu"))


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ("GAUDI", (False, "fp8 needs a Gaudi 2 or newer")),
        ("GAUDI2", (True, "")),
        (None, (False, "no Gaudi card of a known")),
    ],
)
def test_fp8_depends_on_generation(
    generation: str | None, expected: tuple[bool, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "device_name", lambda: generation)
    available, reason = HPUAccelerator.is_fp8_available()

    assert (available, reason[: len(expected[1])]) == expected
    assert bool(reason) != available

    assert not bridge.is_open()


@pytest.mark.parametrize(("devices", "count"), [(1, 1), (8, 8), ([0, 1], 2)])
def test_parallel_devices_have_no_index(devices: int | list[int], count: int) -> None:
    assert HPUAccelerator.get_parallel_devices(devices) == [torch.device("hpu")] * count


@pytest.mark.parametrize("error", [TypeError, ValueError, discovery.NoHPUError])
def test_invalid_devices_raise_error_of_lightning(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(devices: Any) -> int:
        raise error(f"`devices` must not be {devices!r}")

    monkeypatch.setattr(discovery, "parse_devices", refuse)

    with pytest.raises(MisconfigurationException, match=r"^`devices` must not be 'two'$"):
        HPUAccelerator.parse_devices("two")


def test_life_of_an_accelerator(fake_bridge: "FakeBridge") -> None:
    """Statistics are empty before the device is open. A second `fit` uses the same device."""
    accelerator, device = HPUAccelerator(), torch.device("hpu")
    os.environ["PT_HPU_LAZY_MODE"] = "1"
    before = (accelerator.get_device_stats(device), bridge.is_open())
    accelerator.setup_device(device)
    stats = accelerator.get_device_stats(device)
    accelerator.teardown()

    assert isinstance(accelerator, Accelerator)
    assert before == ({}, False)
    assert {name: float(value) for name, value in stats.items()} == {"Limit": 1000, "InUse": 10, "MaxInUse": 20}
    assert bridge.is_open()
    assert HPUAccelerator.is_lazy()
    assert HPUAccelerator.name() == "hpu"
    assert repr(accelerator).startswith(f"<HPUAccelerator of {frameworks.current().name} ")


@pytest.mark.parametrize("reason", ["In reset", "In reset after device release", "TORCHELASTIC_RESTART_COUNT", None])
def test_a_card_is_tried_again_while_the_driver_may_reset_it(
    reason: str | None, fake_bridge: "FakeBridge", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last process was killed. Where no card is in reset, another process has it, and the error comes at once."""
    if reason and reason.startswith("T"):
        monkeypatch.setenv(reason, "1")
    found = (discovery.HPUDevice(index=None, status=reason or "Operational", source="sysfs"),)
    monkeypatch.setattr(discovery, "devices", lambda: found)
    monkeypatch.setattr(fake_bridge.hpu, "failure", "synStatus=20")
    monkeypatch.setattr("time.sleep", lambda _: monkeypatch.setattr(fake_bridge.hpu, "failure", None))

    with pytest.raises(RuntimeError, match="no Gaudi card could be opened") if not reason else nullcontext():
        HPUAccelerator().setup_device(torch.device("hpu"))

    assert bridge.is_open() is bool(reason)


def test_discovery_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "is_available", lambda: True)
    monkeypatch.setattr(discovery, "auto_device_count", lambda: 8)
    monkeypatch.setattr(discovery, "device_name", lambda: "GAUDI3")
    monkeypatch.setattr(discovery, "parse_devices", {"auto": 8}.__getitem__)

    assert HPUAccelerator.parse_devices("auto") == 8
    answers = (HPUAccelerator.is_available(), HPUAccelerator.auto_device_count(), HPUAccelerator.get_device_name())
    assert answers == (True, 8, "GAUDI3")
