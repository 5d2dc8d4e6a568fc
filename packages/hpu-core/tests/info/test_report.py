"""Tests of the report."""

import importlib.util
import re
from collections.abc import Callable

import pytest

from hpu_core.discovery import HPUDevice
from hpu_core.info import LightningInfo, SystemInfo
from hpu_core.info.report import to_text

MakeSystem = Callable[..., SystemInfo]
MakeCard = Callable[..., HPUDevice]


def _screen(system: SystemInfo, width: int = 80) -> str:
    return to_text(system, width=width)


def _words(screen: str) -> str:
    """Return the text on one line, independent of line breaks."""
    return " ".join(screen.split())


@pytest.mark.parametrize("width", [80, 200])
def test_report_fits_terminal(
    make_system: MakeSystem, bare_system: SystemInfo, simulated_system: SystemInfo, width: int
) -> None:
    """No line is wider than the terminal, and all text is ASCII."""
    for machine in (make_system(), bare_system, simulated_system):
        screen = _screen(machine, width=width)

        assert max(map(len, screen.splitlines())) <= width
        assert screen.isascii()


def test_card_has_one_line(make_system: MakeSystem) -> None:
    lines = [line.split() for line in _screen(make_system()).splitlines() if "0000:20:00.0" in line]

    assert lines == [
        ["1", "|", "1", "|", "0000:20:00.0", "|", "GAUDI2", "|", "96", "GiB", "|", "Operational", "|", "bridge"]
    ]


def test_unknown_fields_are_dashes(make_system: MakeSystem, make_card: MakeCard) -> None:
    unknown = make_card(module_id=None, pci_address=None, generation=None, memory_bytes=None, status="Unknown")
    line = next(line for line in _screen(make_system(devices=(unknown,))).splitlines() if "Unknown" in line)

    assert [cell.strip() for cell in line.split("|")] == ["0", "-", "-", "-", "-", "Unknown", "bridge"]


def test_versions(make_system: MakeSystem) -> None:
    words = _words(_screen(make_system()))

    assert "Driver 1.22.0-1a2b3c4" in words
    assert "SynapseAI 1.22.0.740 (from habana-torch-plugin)" in words
    assert "Bridge 1.22.0.740, loaded, eager mode" in words
    assert "torch 2.7.1a0+gitabcdef0" in words
    assert "Lightning lightning 2.5.5 (used)" in words


def test_used_lightning_is_marked(make_system: MakeSystem) -> None:
    both = LightningInfo(used="pytorch_lightning", installed={"lightning": "2.5.5", "pytorch_lightning": "2.5.4"})

    assert "pytorch_lightning 2.5.4 (used), lightning 2.5.5" in _words(_screen(make_system(lightning=both)))


def test_simulation_is_obvious(simulated_system: SystemInfo) -> None:
    """The first line and every card name the simulator."""
    screen = _screen(simulated_system)
    lines = screen.splitlines()

    assert lines[0] == "SIMULATED: these are cards of the simulator. No real Gaudi is used."
    assert sum("simulator" in line for line in lines if "|" in line) == 2


def test_report_without_card_lists_the_sources(bare_system: SystemInfo) -> None:
    words = _words(_screen(bare_system))

    assert "none found. Searched:" in words
    assert "the bridge: not loaded" in words
    assert "Next: `hpu-sim run train.py` needs no card" in words


def test_usable_cards(make_system: MakeSystem, make_card: MakeCard) -> None:
    """The report shows the number of usable cards and the variable that limits it."""
    screen = _screen(make_system(devices=(make_card(0), make_card(1)), usable=1, visible_modules="1"))

    assert "Gaudi cards: 2 found, 1 usable with HABANA_VISIBLE_MODULES=1" in screen


def test_invalid_variable_hides_number_of_usable_cards(make_system: MakeSystem) -> None:
    screen = _screen(make_system(usable=None, visible_modules="x", visible_modules_error="must be a list"))

    assert screen.splitlines()[0] == "Gaudi cards: 8 found, and must be a list"


def test_next_command_says_how_to_install_it(make_system: MakeSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    assert re.search(r"Next: `hpu-doctor` \(pip install \S+\) finds what", _words(_screen(make_system())))


def test_missing_lightning_and_torch(make_system: MakeSystem) -> None:
    words = _words(_screen(make_system(torch=None, lightning=LightningInfo(error="pip install lightning"))))

    assert "torch not installed Lightning not installed" in words
