"""HPUAccelerator against what every Lightning asks of an accelerator."""

import inspect
import os
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hpu_core import HPUAccelerator, bridge, discovery, frameworks
from hpu_core._lightning import Accelerator, MisconfigurationException

if TYPE_CHECKING:
    from conftest import FakeBridge


def test_nothing_abstract_is_left() -> None:
    """Every abstract method of the installed Lightning is there, so an instance can be made."""
    assert isinstance(HPUAccelerator(), Accelerator)


@pytest.mark.parametrize("name", sorted(Accelerator.__abstractmethods__))
def test_methods_are_called_as_lightning_calls_them(name: str) -> None:
    """Static methods stay static, and parameters have Lightning's names."""
    ours, theirs = (inspect.getattr_static(cls, name) for cls in (HPUAccelerator, Accelerator))

    assert isinstance(ours, staticmethod) == isinstance(theirs, staticmethod)
    assert list(inspect.signature(getattr(HPUAccelerator, name)).parameters) == list(
        inspect.signature(getattr(Accelerator, name)).parameters
    )


def test_its_name_is_hpu() -> None:
    """Lightning 2.5.6 and newer ask for the name."""
    assert HPUAccelerator.name() == "hpu"


def test_it_registers_as_hpu() -> None:
    """The registry gives the accelerator for the string, also where Lightning brings its own."""
    registry = frameworks.current().fabric("accelerators.registry")._AcceleratorRegistry()
    registry.register("hpu", Accelerator, description="Lightning 2.0's own")

    HPUAccelerator.register_accelerators(registry)

    assert isinstance(registry.get("hpu"), HPUAccelerator)


@pytest.mark.usefixtures("fake_bridge")
def test_setting_up_opens_the_card() -> None:
    """The card is opened where the training process sets its device up, and not before."""
    accelerator = HPUAccelerator()
    before = bridge.is_open()
    accelerator.setup_device(torch.device("hpu"))

    assert (before, bridge.is_open()) == (False, True)


@pytest.mark.usefixtures("fake_bridge")
def test_another_device_is_refused() -> None:
    """From Lightning 2.5.6 on, an accelerator of another package gets a CPU strategy unless one is passed."""
    with pytest.raises(MisconfigurationException, match=r"device is 'hpu', and this one's is 'cpu'.*SingleHPUStrategy"):
        HPUAccelerator().setup_device(torch.device("cpu"))


@pytest.mark.usefixtures("fake_bridge")
def test_fabrics_programs_may_catch_a_value_error() -> None:
    """Fabric's half of the archived package raised that."""
    with pytest.raises(ValueError, match="this one's is 'cpu'"):
        HPUAccelerator().setup_device(torch.device("cpu"))


@pytest.mark.parametrize(
    ("generation", "expected"),
    [("GAUDI", (False, "fp8 needs a Gaudi 2 or newer")), ("GAUDI2", (True, "")), (None, (False, "there is no Gaudi"))],
)
def test_fp8_is_a_matter_of_the_generation(
    generation: str | None, expected: tuple[bool, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A no comes with its reason."""
    monkeypatch.setattr(discovery, "device_name", lambda: generation)
    available, reason = HPUAccelerator.is_fp8_available()

    assert (available, reason[: len(expected[1])]) == expected
    assert bool(reason) != available

    assert not bridge.is_open()


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_devices_have_no_index(devices: int) -> None:
    """Every process sees its one card as "hpu"."""
    assert HPUAccelerator.get_parallel_devices(devices) == [torch.device("hpu")] * devices


def test_a_list_of_devices_is_counted() -> None:
    """A collection has one entry per card."""
    assert HPUAccelerator.get_parallel_devices([0, 1]) == [torch.device("hpu")] * 2


def test_devices_are_parsed_by_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules for `devices` stand in one place."""
    monkeypatch.setattr(discovery, "parse_devices", {"auto": 8}.__getitem__)

    assert HPUAccelerator.parse_devices("auto") == 8


@pytest.mark.parametrize("error", [TypeError, ValueError, discovery.NoHPUError])
def test_refused_devices_are_lightnings_error(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """What discovery refuses is a MisconfigurationException with the same words."""

    def refuse(devices: Any) -> int:
        raise error(f"`devices` must be another than {devices!r}")

    monkeypatch.setattr(discovery, "parse_devices", refuse)

    with pytest.raises(MisconfigurationException, match=r"^`devices` must be another than 'two'$"):
        HPUAccelerator.parse_devices("two")


def test_discovery_answers_for_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Availability, number and name of the cards are discovery's."""
    monkeypatch.setattr(discovery, "is_available", lambda: True)
    monkeypatch.setattr(discovery, "auto_device_count", lambda: 8)
    monkeypatch.setattr(discovery, "device_name", lambda: "GAUDI3")

    answers = (HPUAccelerator.is_available(), HPUAccelerator.auto_device_count(), HPUAccelerator.get_device_name())
    assert answers == (True, 8, "GAUDI3")


@pytest.mark.usefixtures("fake_bridge")
def test_the_bridge_tells_the_mode() -> None:
    """`is_lazy` is the bridge's."""
    os.environ["PT_HPU_LAZY_MODE"] = "1"

    assert HPUAccelerator.is_lazy()


@pytest.mark.usefixtures("fake_bridge")
def test_stats_before_set_up_are_empty_and_open_nothing() -> None:
    """Asking too early is no reason to take a card."""
    assert HPUAccelerator().get_device_stats(torch.device("hpu")) == {}
    assert not bridge.is_open()


def test_stats_are_numbers(fake_bridge: "FakeBridge") -> None:
    """Loggers take numbers only."""
    accelerator = HPUAccelerator()
    accelerator.setup_device(torch.device("hpu"))

    stats = accelerator.get_device_stats(torch.device("hpu"))

    assert {name: float(value) for name, value in stats.items()} == {"Limit": 1000, "InUse": 10, "MaxInUse": 20}


@pytest.mark.usefixtures("fake_bridge")
def test_teardown_keeps_the_card() -> None:
    """The bridge cannot give a card back before the process ends, and a second fit uses the same one."""
    accelerator = HPUAccelerator()
    accelerator.setup_device(torch.device("hpu"))
    accelerator.teardown()

    assert bridge.is_open()


def test_it_says_which_framework_it_is_for() -> None:
    """Its representation is what Lightning prints when it refuses it."""
    assert repr(HPUAccelerator()).startswith(f"<HPUAccelerator of {frameworks.current().name} ")
