"""Tests of the statistics of a device."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpu_core import bridge, telemetry

_MEMORY = {"Limit": 1000, "InUse": 10, "MaxInUse": 20}
_CARD_1 = {"power_watts": 201.0, "temperature_celsius": 41.0, "utilization_percent": 91.0}


class FakeLibrary:
    """Fake pyhlml with the devices 0 and 1, whose modules are 6 and 7 and whose nodes are accel4 and accel5.

    Attributes:
        functions: Functions of the library.
        failing: Names of functions that fail.
    """

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.functions: dict[str, Callable[..., Any]] = {
            "hlmlInit": lambda: None,
            "hlmlDeviceGetCount": lambda: 2,
            "hlmlDeviceGetHandleByIndex": lambda index: index,
            "hlmlDeviceGetMinorNumber": lambda card: 4 + card,
            "hlmlDeviceGetModuleID": lambda card: 6 + card,
            "hlmlDeviceGetPowerUsage": lambda card: 200_000 + 1000 * card,
            "hlmlDeviceGetTemperature": lambda card, sensor: 40 + card + 100 * sensor,
            "hlmlDeviceGetUtilizationRates": lambda card: SimpleNamespace(aip=90 + card, memory=0),
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self.functions:
            raise AttributeError(name)
        if name not in self.failing:
            return self.functions[name]

        def fail(*args: Any) -> None:
            if name == "hlmlInit":
                print("Failed to load libhlml")  # noqa: T201 - as pyhlml does.
            raise RuntimeError(name)

        return fail


@pytest.fixture
def library(fake_bridge: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLibrary]:
    """A process with an open device and the fake pyhlml."""
    library = FakeLibrary()
    monkeypatch.setitem(sys.modules, "pyhlml", library)
    monkeypatch.setattr(telemetry, "_open_device_nodes", lambda: iter(()))
    bridge.open_device()
    telemetry._load_hlml.cache_clear()
    yield library
    telemetry._load_hlml.cache_clear()


@pytest.mark.usefixtures("fake_bridge")
def test_process_without_device_has_no_stats() -> None:
    """No device is opened."""
    assert telemetry.device_stats() == {}
    assert not bridge.is_open()


def test_device_is_identified_by_open_node(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open node precedes HLS_MODULE_ID."""
    monkeypatch.setattr(telemetry, "_open_device_nodes", lambda: iter((5,)))
    os.environ["HLS_MODULE_ID"] = "6"

    assert telemetry.device_stats() == {**_MEMORY, **_CARD_1}


def test_device_is_identified_by_module(library: FakeLibrary) -> None:
    os.environ["HLS_MODULE_ID"] = "7"

    assert telemetry.device_stats() == {**_MEMORY, **_CARD_1}


def test_only_device_is_identified(library: FakeLibrary) -> None:
    library.functions["hlmlDeviceGetCount"] = lambda: 1

    assert telemetry.device_stats()["power_watts"] == 200.0


def test_ambiguous_device_has_memory_only(library: FakeLibrary) -> None:
    assert telemetry.device_stats() == _MEMORY


@pytest.mark.parametrize("name", [name for name in FakeLibrary().functions if name != "hlmlInit"])
def test_failing_function_costs_one_metric(library: FakeLibrary, name: str) -> None:
    os.environ["HLS_MODULE_ID"] = "7"
    library.failing.add(name)

    stats = telemetry.device_stats()

    lost = {
        "hlmlDeviceGetPowerUsage": {"power_watts"},
        "hlmlDeviceGetTemperature": {"temperature_celsius"},
        "hlmlDeviceGetUtilizationRates": {"utilization_percent"},
        "hlmlDeviceGetMinorNumber": set(),  # Not called, as no node is open.
    }.get(name, set(_CARD_1))
    assert stats.keys() == _MEMORY.keys() | (_CARD_1.keys() - lost)


def test_failing_function_is_retried(library: FakeLibrary) -> None:
    os.environ["HLS_MODULE_ID"] = "7"
    library.failing.add("hlmlDeviceGetPowerUsage")
    telemetry.device_stats()
    library.failing.clear()

    assert telemetry.device_stats() == {**_MEMORY, **_CARD_1}


def test_failing_library_is_logged_once(
    library: FakeLibrary, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the driver's library there is one line in the log, not one per step."""
    library.failing.add("hlmlInit")

    stats = [telemetry.device_stats(), telemetry.device_stats()]

    assert stats == [_MEMORY, _MEMORY]
    assert [record.getMessage() for record in caplog.records] == [
        "pyhlml failed, so power, temperature and utilization are not logged: hlmlInit"
    ]
    assert capsys.readouterr().out == ""


def test_stdout_is_not_redirected(library: FakeLibrary, capsys: pytest.CaptureFixture[str]) -> None:
    """Redirecting it in every step would lose the output of other threads."""

    def power_usage(handle: int) -> int:
        print("epoch 1")  # noqa: T201 - output of another thread at that moment.
        return 200_000

    os.environ["HLS_MODULE_ID"] = "6"
    library.functions["hlmlDeviceGetPowerUsage"] = power_usage
    telemetry.device_stats()
    telemetry.device_stats()

    assert capsys.readouterr().out == "epoch 1\nepoch 1\n"


def test_pyhlml_is_optional(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyhlml", None)

    assert telemetry.device_stats() == _MEMORY


def test_simulated_device_has_memory_only(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge.load(), "__simulated__", True, raising=False)
    library.functions["hlmlDeviceGetCount"] = lambda: 1

    assert telemetry.device_stats() == _MEMORY


def test_open_device_nodes(tmp_path: Path) -> None:
    """Control nodes and other files are ignored."""
    targets = ["/dev/accel/accel3", "/dev/accel/accel_controlD3", "/dev/null", "/dev/accel/accel12"]
    for descriptor, target in enumerate(targets):
        (tmp_path / str(descriptor)).symlink_to(target)

    assert sorted(telemetry._open_device_nodes(tmp_path)) == [3, 12]


def test_system_without_proc(tmp_path: Path) -> None:
    assert list(telemetry._open_device_nodes(tmp_path / "fd")) == []
