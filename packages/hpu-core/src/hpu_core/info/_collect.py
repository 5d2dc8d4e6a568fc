"""Gathers what `hpu-info` reports. Opens no card, judges nothing and prints nothing."""

import importlib.metadata
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hpu_core import bridge as _bridge
from hpu_core import discovery, frameworks
from hpu_core.__about__ import __version__
from hpu_core.discovery import Finding, HPUDevice, Survey, VisibleModulesError
from hpu_core.discovery._bridge import import_torch
from hpu_core.discovery._counting import usable_count
from hpu_core.discovery._synapse import SynapseVersion, synapse_release
from hpu_core.discovery._visible_modules import from_environment
from hpu_core.discovery._visible_modules import text as visible_modules_text

_LIGHTNING_DISTRIBUTIONS = {"lightning": "lightning", "pytorch_lightning": "pytorch-lightning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeFacts:
    """The state of the Gaudi PyTorch bridge in this process.

    Attributes:
        installed: Whether it can be found.
        loaded: Whether it is imported, as it is by `import torch` in eager mode.
        simulated: Whether it is the simulator.
        version: Of the distribution habana-torch-plugin.
        mode: Whether it collects graphs; known once it is loaded.
    """

    installed: bool = False
    loaded: bool = False
    simulated: bool = False
    version: str | None = None
    mode: Literal["lazy", "eager"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningFacts:
    """Which Lightning is there.

    Attributes:
        used: The import name of the one that hpu_core uses; None when it can use none.
        installed: The version of each that is installed, by import name.
        error: Why none can be used.
    """

    used: str | None = None
    installed: dict[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that `hpu-info` knows.

    Attributes:
        hpu_core: The version of this package.
        python: The version of Python.
        torch: The version of torch, None when it is missing.
        torch_error: Why torch cannot be imported.
        lightning: Which Lightning is there.
        bridge: The state of the bridge.
        devices: Every card found.
        findings: What each source of discovery answered.
        visible_modules: The value of HABANA_VISIBLE_MODULES, None when it is not set.
        visible_modules_error: Why that value cannot be honoured.
        usable: How many cards this process may use; None when HABANA_VISIBLE_MODULES cannot be honoured.
        synapse: The SynapseAI release installed, as far as something tells it.
    """

    hpu_core: str = __version__
    python: str
    torch: str | None
    torch_error: str | None = None
    lightning: LightningFacts
    bridge: BridgeFacts
    devices: tuple[HPUDevice, ...] = ()
    findings: tuple[Finding, ...] = ()
    visible_modules: str | None = None
    visible_modules_error: str | None = None
    usable: int | None = 0
    synapse: SynapseVersion | None = None


class Bridge(Protocol):
    """What is asked of `hpu_core.bridge`, none of which opens a card."""

    def is_installed(self) -> bool:
        """Tell whether the bridge can be found."""

    def is_loaded(self) -> bool:
        """Tell whether this process has imported the bridge."""

    def is_simulated(self) -> bool:
        """Tell whether the loaded bridge is the simulator."""

    def is_lazy(self) -> bool:
        """Tell whether the bridge collects graphs."""

    def plugin_version(self) -> str | None:
        """Return the version of the installed bridge."""


def collect(
    *,
    load_torch: Callable[[], str | None] = import_torch,
    look: Callable[[], Survey] = discovery.look,
    bridge: Bridge = _bridge,
    synapse: Callable[[str | None, tuple[HPUDevice, ...]], SynapseVersion | None] = synapse_release,
) -> Facts:
    """Gather the facts.

    Args:
        load_torch: Imports torch, and with it a bridge that loads itself; returns what went wrong.
        look: Looks for cards.
        bridge: The seam to the bridge.
        synapse: Finds the SynapseAI release.
    """
    torch_error = load_torch()
    survey = look()
    bridge_facts = _bridge_facts(bridge)
    usable, visible_modules_error = _usable(survey)
    return Facts(
        python=platform.python_version(),
        torch=_torch_version(),
        torch_error=torch_error,
        lightning=_lightning_facts(),
        bridge=bridge_facts,
        devices=survey.devices,
        findings=survey.findings,
        visible_modules=visible_modules_text(),
        visible_modules_error=visible_modules_error,
        usable=usable,
        synapse=synapse(bridge_facts.version, survey.devices),
    )


def _bridge_facts(bridge: Bridge) -> BridgeFacts:
    loaded = bridge.is_loaded()
    return BridgeFacts(
        installed=bridge.is_installed(),
        loaded=loaded,
        simulated=bridge.is_simulated(),
        version=bridge.plugin_version(),
        # Asking a bridge that is not loaded would load it, with all that this does to the process.
        mode=_mode(bridge) if loaded else None,
    )


def _mode(bridge: Bridge) -> Literal["lazy", "eager"] | None:
    try:
        return "lazy" if bridge.is_lazy() else "eager"
    except Exception:  # noqa: BLE001 - a bridge that is broken half-way; the report goes on without its mode.
        return None


def _usable(survey: Survey) -> tuple[int | None, str | None]:
    try:
        return usable_count(survey.devices, from_environment()), None
    except VisibleModulesError as error:
        return None, str(error)


def _torch_version() -> str | None:
    version = getattr(sys.modules.get("torch"), "__version__", None)
    return str(version) if version is not None else _distribution_version("torch")


def _lightning_facts() -> LightningFacts:
    """Find out which Lightning there is and which one is used, importing none."""
    installed = {
        name: version
        for name, distribution in _LIGHTNING_DISTRIBUTIONS.items()
        if (version := _distribution_version(distribution)) is not None
    }
    try:
        framework = frameworks.decide()
    except (ImportError, ValueError) as error:
        return LightningFacts(installed=installed, error=str(error))
    return LightningFacts(used=framework.name, installed={**installed, framework.name: str(framework.version)})


def _distribution_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
