"""Tests of the diagnosis of a machine."""

import dataclasses
from collections.abc import Callable

import pytest
from packaging.version import Version

from hpu_core import releases
from hpu_core.discovery import HPUDevice, SourceResult, SynapseVersion
from hpu_core.info import BridgeInfo, LightningInfo, SystemInfo
from hpu_core.releases import Release
from hpu_doctor.diagnosis import Problem, diagnose

MakeSystem = Callable[..., SystemInfo]
MakeCard = Callable[..., HPUDevice]


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the release table by two releases, of which the newer one has no data."""
    rows = (
        Release(
            release="1.22.0",
            torch="2.7.1",
            python=("3.10", "3.12"),
            lightning=">=2.5.1,<2.6",
            generations=("GAUDI2", "GAUDI3"),
        ),
        Release(release="1.23.0"),
    )
    monkeypatch.setattr(releases, "releases", lambda: rows)


def _errors(problems: list[Problem]) -> list[str]:
    return [problem.message for problem in problems if problem.blocks_training]


def _notes(problems: list[Problem]) -> list[str]:
    return [problem.message for problem in problems if not problem.blocks_training]


def test_simulated_machine(simulated_system: SystemInfo) -> None:
    """A mismatch is a note, and its hint is for a machine with cards."""
    diagnosis = diagnose(simulated_system)

    assert _errors(diagnosis) == []
    assert _notes(diagnosis) == ["torch 2.13.0+cpu does not match SynapseAI 1.22.0, which is for 2.7.1"]
    assert diagnosis[0].hint.startswith("Nothing for the simulator, which runs on stock torch. On a card: ")
    assert diagnose(dataclasses.replace(simulated_system, synapse=None)) == []


_NOT_LOADED = BridgeInfo(installed=True, version="1.22.0.740")
_TORCH = "torch 2.9.0 does not match SynapseAI 1.22.0, which is for 2.7.1"

# How a machine differs from one without problems, as a function of `make_card`, and its errors and notes.
_CASES: dict[str, tuple[Callable[[MakeCard], dict[str, object]], list[str], list[str]]] = {
    "nothing": (lambda _: {}, [], []),
    # No versions are compared.
    "neither card nor bridge": (
        lambda _: {"devices": (), "sources": (), "bridge": BridgeInfo(), "synapse": None},
        ["the Gaudi PyTorch bridge (habana_frameworks) is not installed", "no Gaudi card was found"],
        [],
    ),
    "a release without data": (
        lambda _: {
            "synapse": SynapseVersion(Version("1.23.0.695"), "driver"),
            "torch": "2.20.0",
            "python": "3.20.0",
        },
        [],
        [],
    ),
    "a broken torch": (
        lambda _: {"torch_error": "ImportError: libtorch.so"},
        ["torch cannot be imported: ImportError: libtorch.so"],
        [],
    ),
    # Training can start on the other devices.
    "a device in reset": (
        lambda card: {"devices": (card(0), card(1, status="In reset"))},
        [],
        ["not operational and not counted: card 0000:20:00.0 (In reset)"],
    ),
    "no operational device": (
        lambda card: {"devices": (card(0, status="In reset"), card(1, status="Malfunction"))},
        ["not operational and not counted: card 0000:19:00.0 (In reset), 0000:20:00.0 (Malfunction)"],
        [],
    ),
    "a loaded bridge without devices": (
        lambda _: {"sources": (SourceResult(source="bridge", location="", message="loaded, but reports no card"),)},
        ["the bridge reports no card, although there are cards"],
        [],
    ),
    # In lazy mode only training loads it.
    "a bridge that is not loaded": (
        lambda _: {
            "bridge": _NOT_LOADED,
            "sources": (SourceResult(source="bridge", location="", message="not loaded in this process"),),
        },
        [],
        [],
    ),
    "visible modules without an operational device": (
        lambda card: {"devices": (card(0), card(1, status="In reset")), "visible_modules": "1", "usable": 0},
        ["HABANA_VISIBLE_MODULES='1' allows no operational card"],
        ["not operational and not counted: card 0000:20:00.0 (In reset)"],
    ),
    # A loaded bridge has accepted its torch.
    "another torch": (lambda _: {"torch": "2.9.0"}, [], [_TORCH]),
    "another torch, before the bridge is loaded": (
        lambda _: {"torch": "2.9.0", "bridge": _NOT_LOADED},
        [_TORCH],
        [],
    ),
    "another Python": (
        lambda _: {"python": "3.13.0"},
        [],
        ["python 3.13.0 does not match SynapseAI 1.22.0, which is for 3.10 or 3.12"],
    ),
    "another Lightning": (
        lambda _: {"lightning": LightningInfo(used="lightning", installed={"lightning": "2.6.6"})},
        [],
        ["lightning 2.6.6 does not match SynapseAI 1.22.0, which is for >=2.5.1,<2.6"],
    ),
    "patches and builds of the release's versions": (
        lambda _: {
            "torch": "2.7.0a0+git009b5f6",
            "python": "3.12.4",
            "lightning": LightningInfo(used="lightning", installed={"lightning": "2.5.2rc1"}),
        },
        [],
        [],
    ),
    "a Python whose minor version begins alike": (
        lambda _: {"python": "3.1.4"},
        [],
        ["python 3.1.4 does not match SynapseAI 1.22.0, which is for 3.10 or 3.12"],
    ),
    "an unused Lightning": (
        lambda _: {
            "lightning": LightningInfo(used="lightning", installed={"lightning": "2.5.5", "pytorch_lightning": "1.9.5"})
        },
        [],
        [],
    ),
    "a newer release": (
        lambda _: {"synapse": SynapseVersion(Version("1.99.0"), "driver")},
        [],
        ["SynapseAI 1.99.0 is not in the release table, which ends at 1.23.0"],
    ),
    "an unknown release": (
        lambda _: {"synapse": None},
        [],
        ["the SynapseAI release is unknown, so versions are not compared with the release table"],
    ),
    "an unsupported generation": (
        lambda card: {"devices": (card(generation="GAUDI"),)},
        [],
        ["generation GAUDI does not match SynapseAI 1.22.0, which is for GAUDI2 or GAUDI3"],
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_problems(case: str, make_system: MakeSystem, make_card: MakeCard) -> None:
    different, errors, notes = _CASES[case]
    diagnosis = diagnose(make_system(**different(make_card)))

    assert (_errors(diagnosis), _notes(diagnosis)) == (errors, notes)


@pytest.mark.parametrize(
    ("different", "problem"),
    [
        ({"lightning": LightningInfo(error="pip install it")}, ("no usable Lightning is installed", "pip install it")),
        (
            {"usable": None, "visible_modules": "0,x", "visible_modules_error": "must be a list"},
            ("HABANA_VISIBLE_MODULES is invalid", "must be a list"),
        ),
    ],
)
def test_hint_is_the_error_that_was_found(
    different: dict[str, object], problem: tuple[str, str], make_system: MakeSystem
) -> None:
    assert [(found.message, found.hint) for found in diagnose(make_system(**different))] == [problem]
