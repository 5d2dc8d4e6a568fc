"""Tests of the diagnosis of a machine."""

import dataclasses
from collections.abc import Callable

import pytest
from packaging.version import Version

from hpu_core import releases
from hpu_core.discovery import HPUDevice, SourceResult, SynapseVersion
from hpu_core.info import BridgeInfo, Diagnosis, LightningInfo, SystemInfo, diagnose
from hpu_core.releases import Release

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


def _errors(diagnosis: Diagnosis) -> list[str]:
    return [problem.message for problem in diagnosis.problems if problem.blocks_training]


def _notes(diagnosis: Diagnosis) -> list[str]:
    return [problem.message for problem in diagnosis.problems if not problem.blocks_training]


def test_matching_machine_has_no_problem(make_system: MakeSystem) -> None:
    diagnosis = diagnose(make_system())

    assert diagnosis.can_train
    assert diagnosis.problems == ()
    assert diagnosis.release is not None
    assert diagnosis.release.release == "1.22.0"


def test_machine_without_gaudi(bare_system: SystemInfo) -> None:
    """Card and bridge are missing, and no versions are compared."""
    diagnosis = diagnose(bare_system)

    assert not diagnosis.can_train
    assert _errors(diagnosis) == [
        "the Gaudi PyTorch bridge (habana_frameworks) is not installed",
        "no Gaudi card was found",
    ]
    assert _notes(diagnosis) == []


def test_simulated_machine(simulated_system: SystemInfo) -> None:
    """A mismatch is a note, and its hint is for a machine with cards."""
    diagnosis = diagnose(simulated_system)

    assert diagnosis.can_train
    assert _notes(diagnosis) == ["torch 2.13.0+cpu does not match SynapseAI 1.22.0, which is for 2.7.1"]
    assert diagnosis.problems[0].hint.startswith("Nothing for the simulator, which runs on stock torch. On a card: ")


def test_simulator_without_release(simulated_system: SystemInfo) -> None:
    """The hint does not mention tools that a simulated machine lacks."""
    diagnosis = diagnose(dataclasses.replace(simulated_system, synapse=None))

    assert [problem.hint for problem in diagnosis.problems] == [
        "Nothing: the simulator does not stand for a release here."
    ]


def test_every_problem_has_a_remedy(bare_system: SystemInfo) -> None:
    assert all(problem.hint for problem in diagnose(bare_system).problems)


def test_errors_precede_notes(make_system: MakeSystem, make_card: MakeCard) -> None:
    cards = (make_card(0), make_card(1, status="In reset"))
    diagnosis = diagnose(
        make_system(devices=cards, usable=None, visible_modules="x", visible_modules_error="must be a list")
    )

    assert [problem.blocks_training for problem in diagnosis.problems] == [True, False]


def test_broken_torch_is_an_error(make_system: MakeSystem) -> None:
    assert _errors(diagnose(make_system(torch_error="ImportError: libtorch.so"))) == [
        "torch cannot be imported: ImportError: libtorch.so"
    ]


def test_missing_lightning_is_an_error(make_system: MakeSystem) -> None:
    """The hint is the text of its own error."""
    diagnosis = diagnose(make_system(lightning=LightningInfo(error="pip install lightning")))

    assert [(problem.message, problem.hint) for problem in diagnosis.problems] == [
        ("no usable Lightning is installed", "pip install lightning")
    ]


def test_device_in_reset_is_a_note(make_system: MakeSystem, make_card: MakeCard) -> None:
    """Training can start on the other devices."""
    diagnosis = diagnose(make_system(devices=(make_card(0), make_card(1, status="In reset"))))

    assert diagnosis.can_train
    assert _notes(diagnosis) == ["not operational and not counted: card 1 (In reset)"]


def test_no_operational_device_is_an_error(make_system: MakeSystem, make_card: MakeCard) -> None:
    diagnosis = diagnose(make_system(devices=(make_card(0, status="In reset"), make_card(1, status="Malfunction"))))

    assert _errors(diagnosis) == ["not operational and not counted: card 0 (In reset), 1 (Malfunction)"]


def test_loaded_bridge_without_devices_is_an_error(make_system: MakeSystem) -> None:
    diagnosis = diagnose(
        make_system(sources=(SourceResult(source="bridge", location="", message="loaded, but reports no card"),))
    )

    assert _errors(diagnosis) == ["the bridge reports no card, although there are cards"]


def test_bridge_that_is_not_loaded_is_no_problem(make_system: MakeSystem) -> None:
    """In lazy mode only training loads it."""
    diagnosis = diagnose(
        make_system(
            bridge=BridgeInfo(installed=True, version="1.22.0.740"),
            sources=(SourceResult(source="bridge", location="", message="not loaded in this process"),),
        )
    )

    assert diagnosis.problems == ()


def test_invalid_visible_modules_is_an_error(make_system: MakeSystem) -> None:
    diagnosis = diagnose(make_system(usable=None, visible_modules="0,x", visible_modules_error="must be a list"))

    assert [(problem.message, problem.hint) for problem in diagnosis.problems] == [
        ("HABANA_VISIBLE_MODULES is invalid", "must be a list")
    ]


def test_visible_modules_without_operational_device_is_an_error(make_system: MakeSystem, make_card: MakeCard) -> None:
    diagnosis = diagnose(
        make_system(devices=(make_card(0), make_card(1, status="In reset")), visible_modules="1", usable=0)
    )

    assert _errors(diagnosis) == ["HABANA_VISIBLE_MODULES='1' allows no operational card"]


def test_torch_mismatch_with_loaded_bridge_is_a_note(make_system: MakeSystem) -> None:
    """A loaded bridge has accepted its torch."""
    diagnosis = diagnose(make_system(torch="2.9.0"))

    assert diagnosis.can_train
    assert _notes(diagnosis) == ["torch 2.9.0 does not match SynapseAI 1.22.0, which is for 2.7.1"]


def test_torch_mismatch_before_bridge_is_loaded_is_an_error(make_system: MakeSystem) -> None:
    diagnosis = diagnose(make_system(torch="2.9.0", bridge=BridgeInfo(installed=True, version="1.22.0.740")))

    assert _errors(diagnosis) == ["torch 2.9.0 does not match SynapseAI 1.22.0, which is for 2.7.1"]


@pytest.mark.parametrize(
    ("different", "message"),
    [
        ({"python": "3.13.0"}, "python 3.13.0 does not match SynapseAI 1.22.0, which is for 3.10 or 3.12"),
        (
            {"lightning": LightningInfo(used="lightning", installed={"lightning": "2.6.6"})},
            "lightning 2.6.6 does not match SynapseAI 1.22.0, which is for >=2.5.1,<2.6",
        ),
        (
            {"synapse": SynapseVersion(Version("1.99.0"), "hl-smi")},
            "SynapseAI 1.99.0 is not in the release table, which ends at 1.23.0",
        ),
        (
            {"synapse": None},
            "the SynapseAI release is unknown, so versions are not compared with the release table",
        ),
    ],
)
def test_other_mismatches_are_notes(make_system: MakeSystem, different: dict[str, object], message: str) -> None:
    diagnosis = diagnose(make_system(**different))

    assert diagnosis.can_train
    assert _notes(diagnosis) == [message]


def test_unused_lightning_is_not_compared(make_system: MakeSystem) -> None:
    both = LightningInfo(used="lightning", installed={"lightning": "2.5.5", "pytorch_lightning": "1.9.5"})

    assert diagnose(make_system(lightning=both)).problems == ()


def test_unsupported_generation_is_a_note(make_system: MakeSystem, make_card: MakeCard) -> None:
    diagnosis = diagnose(make_system(devices=(make_card(generation="GAUDI"),)))

    assert _notes(diagnosis) == ["generation GAUDI does not match SynapseAI 1.22.0, which is for GAUDI2 or GAUDI3"]


def test_driver_mismatch_is_one_note(make_system: MakeSystem, make_card: MakeCard) -> None:
    """Devices with the same driver share the note."""
    cards = tuple(make_card(index, driver_version="1.23.0-ffffff0") for index in range(2))

    assert _notes(diagnose(make_system(devices=cards))) == ["driver 1.23.0-ffffff0 does not match SynapseAI 1.22.0"]


def test_unknown_driver_version_is_not_compared(make_system: MakeSystem, make_card: MakeCard) -> None:
    assert diagnose(make_system(devices=(make_card(driver_version="dev"),))).problems == ()


def test_release_without_data_matches_everything(make_system: MakeSystem) -> None:
    newer = make_system(synapse=SynapseVersion(Version("1.23.0.695"), "hl-smi"), torch="2.20.0", python="3.20.0")
    devices = tuple(dataclasses.replace(device, driver_version="1.23.0") for device in newer.devices)

    assert diagnose(dataclasses.replace(newer, devices=devices)).problems == ()
