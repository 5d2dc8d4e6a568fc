"""The facts are judged by what training needs and by the release table, and each problem says what to do."""

import dataclasses
from collections.abc import Callable

import pytest
from packaging.version import Version

from hpu_core import releases
from hpu_core.discovery import Finding, HPUDevice
from hpu_core.discovery._synapse import SynapseVersion
from hpu_core.info._collect import BridgeFacts, Facts, LightningFacts
from hpu_core.info._judge import Verdict, judge
from hpu_core.releases import Release

MakeFacts = Callable[..., Facts]
MakeCard = Callable[..., HPUDevice]


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judges by a table of two releases, of which the newer one says nothing."""
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


def _stops(verdict: Verdict) -> list[str]:
    return [problem.what for problem in verdict.problems if problem.stops_training]


def _notes(verdict: Verdict) -> list[str]:
    return [problem.what for problem in verdict.problems if not problem.stops_training]


def test_a_machine_on_which_all_fits(facts: MakeFacts) -> None:
    """Nothing is wrong where nothing is, and the release is known."""
    verdict = judge(facts())

    assert verdict.can_train
    assert verdict.problems == ()
    assert verdict.release is not None
    assert verdict.release.release == "1.22.0"


def test_a_machine_without_anything_of_gaudi(bare_facts: Facts) -> None:
    """A machine that is none for Gaudi lacks card and bridge, and nothing is compared with the table."""
    verdict = judge(bare_facts)

    assert not verdict.can_train
    assert _stops(verdict) == [
        "the Gaudi PyTorch bridge (habana_frameworks) is not installed",
        "no Gaudi card was found",
    ]
    assert _notes(verdict) == []


def test_simulated_cards(simulated_facts: Facts) -> None:
    """Training can start on simulated cards, and what a card would need is a note."""
    verdict = judge(simulated_facts)

    assert verdict.can_train
    assert _notes(verdict) == ["torch 2.13.0+cpu with SynapseAI 1.22.0, which goes with 2.7.1"]
    assert verdict.problems[0].todo.startswith("Nothing for the simulator, which runs on stock torch. On a card: ")


def test_a_simulator_that_tells_no_release(simulated_facts: Facts) -> None:
    """Nobody is sent to look for the vendor's tools on a machine with simulated cards."""
    verdict = judge(dataclasses.replace(simulated_facts, synapse=None))

    assert [problem.todo for problem in verdict.problems] == [
        "Nothing: the simulator stands for no certain release here."
    ]


def test_every_problem_says_what_to_do(bare_facts: Facts) -> None:
    """No problem is told without an advice."""
    assert all(problem.todo for problem in judge(bare_facts).problems)


def test_what_stops_comes_first(facts: MakeFacts, card: MakeCard) -> None:
    """What keeps training from starting is told before what does not."""
    cards = (card(0), card(1, status="In reset"))
    verdict = judge(facts(devices=cards, usable=None, visible_modules="x", visible_modules_error="must be a list"))

    assert [problem.stops_training for problem in verdict.problems] == [True, False]


def test_torch_that_cannot_be_imported(facts: MakeFacts) -> None:
    """Without torch nothing can be trained."""
    assert _stops(judge(facts(torch_error="ImportError: libtorch.so"))) == [
        "torch cannot be imported: ImportError: libtorch.so"
    ]


def test_no_lightning(facts: MakeFacts) -> None:
    """Without Lightning nothing can be trained, and its own error says what to do."""
    verdict = judge(facts(lightning=LightningFacts(error="pip install lightning")))

    assert [(problem.what, problem.todo) for problem in verdict.problems] == [
        ("no Lightning can be used", "pip install lightning")
    ]


def test_a_card_in_reset_is_a_note(facts: MakeFacts, card: MakeCard) -> None:
    """One card of several that is not operational does not stop training on the others."""
    verdict = judge(facts(devices=(card(0), card(1, status="In reset"))))

    assert verdict.can_train
    assert _notes(verdict) == ["not operational, so not counted: card 1 (In reset)"]


def test_no_card_works(facts: MakeFacts, card: MakeCard) -> None:
    """Cards none of which is operational cannot be trained on."""
    verdict = judge(facts(devices=(card(0, status="In reset"), card(1, status="Malfunction"))))

    assert _stops(verdict) == ["not operational, so not counted: card 0 (In reset), 1 (Malfunction)"]


def test_a_loaded_bridge_without_cards(facts: MakeFacts) -> None:
    """Cards that sysfs shows and the bridge does not see cannot be trained on."""
    verdict = judge(facts(findings=(Finding(source="bridge", place="", found="it sees no card"),)))

    assert _stops(verdict) == ["the bridge sees no card, although there are cards"]


def test_a_bridge_that_is_not_loaded_sees_nothing_yet(facts: MakeFacts) -> None:
    """In lazy mode the bridge is loaded by the training only, which is nothing wrong."""
    verdict = judge(
        facts(
            bridge=BridgeFacts(installed=True, version="1.22.0.740"),
            findings=(Finding(source="bridge", place="", found="this process has not loaded it"),),
        )
    )

    assert verdict.problems == ()


def test_a_malformed_variable(facts: MakeFacts) -> None:
    """HABANA_VISIBLE_MODULES that cannot be honoured stops training, and its error says what to do."""
    verdict = judge(facts(usable=None, visible_modules="0,x", visible_modules_error="must be a list"))

    assert [(problem.what, problem.todo) for problem in verdict.problems] == [
        ("HABANA_VISIBLE_MODULES cannot be honoured", "must be a list")
    ]


def test_a_variable_that_leaves_no_card(facts: MakeFacts, card: MakeCard) -> None:
    """HABANA_VISIBLE_MODULES that names broken cards only stops training."""
    verdict = judge(facts(devices=(card(0), card(1, status="In reset")), visible_modules="1", usable=0))

    assert _stops(verdict) == ["HABANA_VISIBLE_MODULES='1' leaves no operational card"]


def test_another_torch_than_a_loaded_bridge_is_built_for(facts: MakeFacts) -> None:
    """A bridge that is loaded has accepted its torch, whatever the table says."""
    verdict = judge(facts(torch="2.9.0"))

    assert verdict.can_train
    assert _notes(verdict) == ["torch 2.9.0 with SynapseAI 1.22.0, which goes with 2.7.1"]


def test_another_torch_than_the_bridge_is_built_for(facts: MakeFacts) -> None:
    """A bridge that is not loaded yet will refuse another torch."""
    verdict = judge(facts(torch="2.9.0", bridge=BridgeFacts(installed=True, version="1.22.0.740")))

    assert _stops(verdict) == ["torch 2.9.0 with SynapseAI 1.22.0, which goes with 2.7.1"]


@pytest.mark.parametrize(
    ("different", "what"),
    [
        ({"python": "3.13.0"}, "python 3.13.0 with SynapseAI 1.22.0, which goes with 3.10 or 3.12"),
        (
            {"lightning": LightningFacts(used="lightning", installed={"lightning": "2.6.6"})},
            "lightning 2.6.6 with SynapseAI 1.22.0, which goes with >=2.5.1,<2.6",
        ),
        (
            {"synapse": SynapseVersion(Version("1.99.0"), "hl-smi")},
            "SynapseAI 1.99.0 is not in the release table, which ends at 1.23.0",
        ),
        (
            {"synapse": None},
            "the SynapseAI release cannot be told, so nothing is compared with the release table",
        ),
    ],
)
def test_what_does_not_match_is_a_note(facts: MakeFacts, different: dict[str, object], what: str) -> None:
    """What the table does not name may work, so it stops nothing."""
    verdict = judge(facts(**different))

    assert verdict.can_train
    assert _notes(verdict) == [what]


def test_the_lightning_that_is_not_used_is_not_compared(facts: MakeFacts) -> None:
    """Of two Lightnings only the one that is used has to match."""
    both = LightningFacts(used="lightning", installed={"lightning": "2.5.5", "pytorch_lightning": "1.9.5"})

    assert judge(facts(lightning=both)).problems == ()


def test_a_generation_that_the_release_dropped(facts: MakeFacts, card: MakeCard) -> None:
    """A card that the release does not support is told with the ones that it does."""
    verdict = judge(facts(devices=(card(generation="GAUDI"),)))

    assert _notes(verdict) == ["generation GAUDI with SynapseAI 1.22.0, which goes with GAUDI2 or GAUDI3"]


def test_a_driver_of_another_release(facts: MakeFacts, card: MakeCard) -> None:
    """A driver of another release than the software is told once for all its cards."""
    cards = tuple(card(index, driver_version="1.23.0-ffffff0") for index in range(2))

    assert _notes(judge(facts(devices=cards))) == ["driver 1.23.0-ffffff0 with SynapseAI 1.22.0"]


def test_a_driver_that_tells_no_release(facts: MakeFacts, card: MakeCard) -> None:
    """A driver version that cannot be read is not compared."""
    assert judge(facts(devices=(card(driver_version="dev"),))).problems == ()


def test_a_row_that_says_nothing(facts: MakeFacts) -> None:
    """A release of which the table knows nothing but the name matches everything."""
    newer = facts(synapse=SynapseVersion(Version("1.23.0.695"), "hl-smi"), torch="2.20.0", python="3.20.0")
    devices = tuple(dataclasses.replace(device, driver_version="1.23.0") for device in newer.devices)

    assert judge(dataclasses.replace(newer, devices=devices)).problems == ()
