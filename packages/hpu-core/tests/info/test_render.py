"""The screen tells everything within 80 columns of plain ASCII."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from hpu_core.discovery import HPUDevice
from hpu_core.info._collect import BridgeFacts, Facts, LightningFacts
from hpu_core.info._judge import Problem, Verdict, judge
from hpu_core.info._render import render
from hpu_core.releases import Release

MakeFacts = Callable[..., Facts]
MakeCard = Callable[..., HPUDevice]


def _screen(facts: Facts, verdict: Verdict | None = None, width: int = 80) -> str:
    file = io.StringIO()
    render(Console(file=file, width=width, highlight=False), facts, verdict or judge(facts))
    return file.getvalue()


def _words(screen: str) -> str:
    """The screen as one line, so that it does not matter where a line was broken."""
    return " ".join(screen.split())


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits(facts: MakeFacts, bare_facts: Facts, simulated_facts: Facts, width: int) -> None:
    """No line is wider than the terminal, and none holds anything but ASCII."""
    for machine in (facts(), bare_facts, simulated_facts):
        screen = _screen(machine, width=width)

        assert max(map(len, screen.splitlines())) <= width
        assert screen.isascii()


def test_one_screen(facts: MakeFacts) -> None:
    """A machine with 8 cards on which all fits takes a screen of 24 lines at most."""
    assert len(_screen(facts()).splitlines()) <= 24


def test_a_card_has_one_line(facts: MakeFacts) -> None:
    """A card's facts stand in one line at 80 columns."""
    lines = [line.split() for line in _screen(facts()).splitlines() if "0000:20:00.0" in line]

    assert lines == [
        ["1", "|", "1", "|", "0000:20:00.0", "|", "GAUDI2", "|", "96", "GiB", "|", "Operational", "|", "bridge"]
    ]


def test_what_is_unknown_is_a_dash(facts: MakeFacts, card: MakeCard) -> None:
    """What nobody tells of a card is not made up."""
    unknown = card(module_id=None, pci_address=None, generation=None, memory_bytes=None, status="Unknown")
    line = next(line for line in _screen(facts(devices=(unknown,))).splitlines() if "Unknown" in line)

    assert [cell.strip() for cell in line.split("|")] == ["0", "-", "-", "-", "-", "Unknown", "bridge"]


def test_versions(facts: MakeFacts) -> None:
    """Driver, SynapseAI, release, bridge, torch and Lightning are told."""
    words = _words(_screen(facts()))

    assert "Driver 1.22.0-1a2b3c4" in words
    assert "SynapseAI 1.22.0.740 (from habana-torch-plugin)" in words
    assert "Release 1.22.0: torch 2.7.1" in words
    assert "Bridge 1.22.0.740, loaded, eager mode" in words
    assert "torch 2.7.1a0+gitabcdef0" in words
    assert "Lightning lightning 2.5.5 (used)" in words


def test_a_release_of_which_nothing_is_known(facts: MakeFacts) -> None:
    """What the table does not say of a release is left out or called unknown."""
    words = _words(_screen(facts(), Verdict(release=Release(release="1.22.0"), problems=())))

    assert "Release 1.22.0: torch unknown Bridge" in words


def test_both_lightnings(facts: MakeFacts) -> None:
    """With two Lightnings installed it is told which one is used."""
    both = LightningFacts(used="pytorch_lightning", installed={"lightning": "2.5.5", "pytorch_lightning": "2.5.4"})

    assert "pytorch_lightning 2.5.4 (used), lightning 2.5.5" in _words(_screen(facts(lightning=both)))


def test_simulated_is_said_plainly(simulated_facts: Facts) -> None:
    """Nobody can take simulated cards for real ones: it stands first, at each card and last."""
    screen = _screen(simulated_facts)
    lines = screen.splitlines()

    assert lines[0] == "SIMULATED: the simulator plays these cards. No real Gaudi is used."
    assert sum("simulator" in line for line in lines if "|" in line) == 2
    assert lines[-1] == "Training can start on 2 simulated cards."


def test_no_card_says_where_was_looked(bare_facts: Facts) -> None:
    """Without a card every place looked at is told with what was there."""
    words = _words(_screen(bare_facts))

    assert "none found. Looked at:" in words
    assert "the command hl-smi: it is not on PATH" in words
    assert words.endswith("Training cannot start.")


def test_usable_cards(facts: MakeFacts, card: MakeCard) -> None:
    """The number of usable cards is told with the variable that limits it."""
    screen = _screen(facts(devices=(card(0), card(1)), usable=1, visible_modules="1"))

    assert "Gaudi cards: 2 found, 1 usable with HABANA_VISIBLE_MODULES=1" in screen
    assert "Training can start on 1 card." in screen


def test_no_number_where_there_is_none(facts: MakeFacts) -> None:
    """A variable that cannot be honoured leaves the number of usable cards out."""
    screen = _screen(facts(usable=None, visible_modules="x", visible_modules_error="must be a list"))

    assert screen.splitlines()[0] == "Gaudi cards: 8 found"


def test_problems(facts: MakeFacts) -> None:
    """Each problem is told with its weight and what to do."""
    problems = (
        Problem(stops_training=True, what="no bridge", todo="install it"),
        Problem(stops_training=False, what="another python", todo="use that one"),
    )
    words = _words(_screen(facts(), Verdict(release=None, problems=problems)))

    assert "Stops training: no bridge install it Note: another python use that one Training cannot start." in words


def test_markup_is_shown_and_not_obeyed(facts: MakeFacts, card: MakeCard) -> None:
    """Words of a driver that look like markup or control a terminal are shown."""
    screen = _screen(facts(devices=(card(status="[red]\x1b[31m"),), bridge=BridgeFacts(installed=True, version="[b]")))

    assert "[red]?[31m" in screen
    assert "[b]" in screen
    assert "\x1b" not in screen


def test_no_lightning_and_no_torch(facts: MakeFacts) -> None:
    """What is not installed is called so."""
    words = _words(_screen(facts(torch=None, lightning=LightningFacts(error="pip install lightning"))))

    assert "torch not installed Lightning not installed" in words
