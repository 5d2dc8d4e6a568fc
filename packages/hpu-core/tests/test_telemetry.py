"""Figures of a card: where they come from, and that nothing about them can fail a training."""

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
    """pyhlml with cards whose handles are 0 and 1; their modules are 6 and 7, their device nodes accel4 and accel5.

    Attributes:
        answers: The library's functions.
        failing: Names of those that fail, printing as pyhlml does in places.
    """

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.answers: dict[str, Callable[..., Any]] = {
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
        if name not in self.answers:
            raise AttributeError(name)
        if name not in self.failing:
            return self.answers[name]

        def fail(*args: Any) -> None:
            print("Failed")  # noqa: T201 - as the library does.
            raise RuntimeError(name)

        return fail


@pytest.fixture
def library(fake_bridge: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLibrary]:
    """A process that has a card open and pyhlml at hand."""
    library = FakeLibrary()
    monkeypatch.setitem(sys.modules, "pyhlml", library)
    monkeypatch.setattr(telemetry, "_open_device_nodes", lambda: iter(()))
    bridge.open_device()
    telemetry._library.cache_clear()
    yield library
    telemetry._library.cache_clear()


@pytest.mark.usefixtures("fake_bridge")
def test_a_process_without_a_card_has_no_figures() -> None:
    """Nothing is opened to ask."""
    assert telemetry.device_stats() == {}
    assert not bridge.is_open()


def test_the_card_is_found_by_its_open_node(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device node that the process has open says which card is its own, before anything else."""
    monkeypatch.setattr(telemetry, "_open_device_nodes", lambda: iter((5,)))
    os.environ["HLS_MODULE_ID"] = "6"

    assert telemetry.device_stats() == {**_MEMORY, **_CARD_1}


def test_the_card_is_found_by_its_module(library: FakeLibrary) -> None:
    """Where the node is not known, HLS_MODULE_ID says which card was opened."""
    os.environ["HLS_MODULE_ID"] = "7"

    assert telemetry.device_stats() == {**_MEMORY, **_CARD_1}


def test_the_only_card_is_the_own_one(library: FakeLibrary) -> None:
    """On a machine with one card there is nothing to find out."""
    library.answers["hlmlDeviceGetCount"] = lambda: 1

    assert telemetry.device_stats()["power_watts"] == 200.0


def test_another_cards_figures_are_not_shown(library: FakeLibrary) -> None:
    """Where the own card cannot be told from others, no figure is given rather than somebody else's."""
    assert telemetry.device_stats() == _MEMORY


@pytest.mark.parametrize("name", [name for name in FakeLibrary().answers if name != "hlmlInit"])
def test_a_failing_call_costs_its_own_figures_only(
    library: FakeLibrary, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever fails in the library, memory is still reported and nothing is raised or printed."""
    os.environ["HLS_MODULE_ID"] = "7"
    library.failing.add(name)

    stats = telemetry.device_stats()

    lost = {
        "hlmlDeviceGetPowerUsage": {"power_watts"},
        "hlmlDeviceGetTemperature": {"temperature_celsius"},
        "hlmlDeviceGetUtilizationRates": {"utilization_percent"},
        "hlmlDeviceGetMinorNumber": set(),  # Not asked, as no node is open.
    }.get(name, set(_CARD_1))
    assert stats.keys() == _MEMORY.keys() | (_CARD_1.keys() - lost)
    assert capsys.readouterr().out == ""


def test_figures_come_back_after_a_failure(library: FakeLibrary) -> None:
    """A call that failed once is asked again."""
    os.environ["HLS_MODULE_ID"] = "7"
    library.failing.add("hlmlDeviceGetPowerUsage")
    telemetry.device_stats()
    library.failing.clear()

    assert telemetry.device_stats() == {**_MEMORY, **_CARD_1}


def test_a_library_that_does_not_start_is_said_once(library: FakeLibrary, caplog: pytest.LogCaptureFixture) -> None:
    """Without the driver's library there is one line in the log, not one per step."""
    library.failing.add("hlmlInit")

    stats = [telemetry.device_stats(), telemetry.device_stats()]

    assert stats == [_MEMORY, _MEMORY]
    assert [record.getMessage() for record in caplog.records] == [
        "pyhlml cannot be used, so power, temperature and utilisation are not logged: hlmlInit"
    ]


def test_without_pyhlml_there_is_memory(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is optional, and silently so."""
    monkeypatch.setitem(sys.modules, "pyhlml", None)

    assert telemetry.device_stats() == _MEMORY


def test_the_simulator_shows_no_real_cards_figures(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated card has no power; the real ones of the machine are not its own."""
    monkeypatch.setattr(bridge.load(), "__simulated__", True, raising=False)
    library.answers["hlmlDeviceGetCount"] = lambda: 1

    assert telemetry.device_stats() == _MEMORY


def test_open_nodes_are_read_from_the_process(tmp_path: Path) -> None:
    """Only the nodes of cards count, not their control nodes nor other files."""
    targets = ["/dev/accel/accel3", "/dev/accel/accel_controlD3", "/dev/null", "/dev/accel/accel12"]
    for descriptor, target in enumerate(targets):
        (tmp_path / str(descriptor)).symlink_to(target)

    assert sorted(telemetry._open_device_nodes(tmp_path)) == [3, 12]


def test_a_system_without_proc_has_no_open_nodes(tmp_path: Path) -> None:
    """A missing /proc is no error."""
    assert list(telemetry._open_device_nodes(tmp_path / "fd")) == []
