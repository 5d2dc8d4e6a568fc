"""The facts are gathered from every side, without opening a card and without failing on any of them."""

import platform
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from packaging.version import Version

from hpu_core import frameworks
from hpu_core.__about__ import __version__
from hpu_core.discovery import HPUDevice, Survey
from hpu_core.discovery._synapse import SynapseVersion
from hpu_core.frameworks import Framework
from hpu_core.info import _collect
from hpu_core.info._collect import BridgeFacts, Facts, LightningFacts

MakeCard = Callable[..., HPUDevice]


@dataclass
class _FakeBridge:
    """A bridge that answers what may be asked here; any other question is an AttributeError."""

    loaded: bool = True
    simulated: bool = False
    lazy: bool = False

    def is_installed(self) -> bool:
        return True

    def is_loaded(self) -> bool:
        return self.loaded

    def is_simulated(self) -> bool:
        return self.simulated

    def is_lazy(self) -> bool:
        if not self.loaded:
            pytest.fail("asking for the mode would load the bridge")
        return self.lazy

    def plugin_version(self) -> str | None:
        return "1.24.1.482"


def _collected(*devices: HPUDevice, bridge: _FakeBridge | None = None, torch_error: str | None = None) -> Facts:
    return _collect.collect(
        load_torch=lambda: torch_error,
        look=lambda: Survey(devices=devices),
        bridge=bridge or _FakeBridge(),
        synapse=lambda plugin, devices: SynapseVersion(Version(plugin or "0"), f"{len(devices)} cards"),
    )


@pytest.fixture(autouse=True)
def every_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """HABANA_VISIBLE_MODULES is not set."""
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)


def test_versions() -> None:
    """The versions of this package, of Python and of torch are those of this process."""
    facts = _collected()

    assert (facts.hpu_core, facts.python) == (__version__, platform.python_version())
    assert facts.torch is not None
    assert facts.torch_error is None


def test_a_broken_torch() -> None:
    """What keeps torch from being imported is told."""
    assert _collected(torch_error="ImportError: libtorch.so").torch_error == "ImportError: libtorch.so"


def test_cards(card: MakeCard) -> None:
    """The cards are listed, and those counted that can be used."""
    facts = _collected(card(0), card(1, status="In reset"))

    assert (len(facts.devices), facts.usable) == (2, 1)


def test_allowed_modules(card: MakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """HABANA_VISIBLE_MODULES is told and honoured."""
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "1")
    facts = _collected(card(0), card(1))

    assert (facts.visible_modules, facts.usable, facts.visible_modules_error) == ("1", 1, None)


def test_a_malformed_variable(card: MakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that cannot be honoured is told with its error, and no number of cards is made up."""
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "0,x")
    facts = _collected(card(0))

    assert (facts.visible_modules, facts.usable) == ("0,x", None)
    assert facts.visible_modules_error is not None
    assert "'0,x'" in facts.visible_modules_error


@pytest.mark.parametrize(("lazy", "mode"), [(True, "lazy"), (False, "eager")])
def test_a_loaded_bridge(lazy: bool, mode: str) -> None:
    """A loaded bridge tells its mode."""
    assert _collected(bridge=_FakeBridge(lazy=lazy)).bridge == BridgeFacts(
        installed=True,
        loaded=True,
        version="1.24.1.482",
        mode="lazy" if mode == "lazy" else "eager",
    )


def test_a_bridge_that_is_not_loaded() -> None:
    """A bridge that is not loaded stays so, and its mode unknown."""
    facts = _collected(bridge=_FakeBridge(loaded=False)).bridge

    assert (facts.loaded, facts.mode) == (False, None)


def test_a_bridge_that_cannot_tell_its_mode() -> None:
    """A bridge that fails when it is asked costs the report its mode only."""

    class Failing(_FakeBridge):
        def is_lazy(self) -> bool:
            raise ImportError("half installed")

    assert _collected(bridge=Failing()).bridge.mode is None


def test_simulated() -> None:
    """The simulator is told as what it is."""
    assert _collected(bridge=_FakeBridge(simulated=True)).bridge.simulated is True


def test_the_synapse_release_is_asked_for_with_what_is_known(card: MakeCard) -> None:
    """The search for the release gets the bridge's version and the cards."""
    assert _collected(card()).synapse == SynapseVersion(Version("1.24.1.482"), "1 cards")


def test_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lightning that hpu_core uses is told, among those that are installed."""
    monkeypatch.setattr(frameworks, "decide", lambda: Framework("lightning", Version("2.5.5")))
    facts = _collected().lightning

    assert (facts.used, facts.installed["lightning"], facts.error) == ("lightning", "2.5.5", None)


@pytest.mark.parametrize("error", [ModuleNotFoundError("none is installed"), ImportError("compromised")])
def test_no_lightning(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Why no Lightning can be used is told in its own words."""

    def fail() -> Framework:
        raise error

    monkeypatch.setattr(frameworks, "decide", fail)
    monkeypatch.setattr(_collect, "_distribution_version", lambda distribution: None)

    assert _collected().lightning == LightningFacts(error=str(error))


def test_a_distribution_that_is_not_installed() -> None:
    """What is not installed has no version."""
    assert _collect._distribution_version("a-distribution-that-nobody-has") is None


def test_collect_as_hpu_info_does() -> None:
    """With nothing given, this machine is reported on, whatever it is."""
    facts = _collect.collect()

    assert [finding.source for finding in facts.findings][:1] == ["bridge"]
