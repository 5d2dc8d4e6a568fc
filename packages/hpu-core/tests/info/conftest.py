"""Machines for hpu-info to report on."""

from collections.abc import Callable
from typing import Any

import pytest
from packaging.version import Version

from hpu_core.discovery import Finding, HPUDevice
from hpu_core.discovery._synapse import SynapseVersion
from hpu_core.info._collect import BridgeFacts, Facts, LightningFacts

_GIB = 1024**3


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment asks for colours or for another width than the default of 80 columns."""
    for name in ("COLUMNS", "FORCE_COLOR", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def card() -> Callable[..., HPUDevice]:
    """Makes a working Gaudi 2, with whatever is to be different."""

    def make(index: int = 0, **different: Any) -> HPUDevice:
        known = {
            "module_id": index,
            "pci_address": f"0000:{index + 19}:00.0",
            "generation": "GAUDI2",
            "memory_bytes": 96 * _GIB,
            "memory_source": "reported",
            "status": "Operational",
            "driver_version": "1.22.0-1a2b3c4",
            "source": "bridge",
        }
        return HPUDevice(index=index, **{**known, **different})

    return make


@pytest.fixture
def facts(card: Callable[..., HPUDevice]) -> Callable[..., Facts]:
    """Makes the facts of a machine with 8 cards on which everything fits SynapseAI 1.22.0, but for what is given."""

    def make(**different: Any) -> Facts:
        devices = different.pop("devices", tuple(card(index) for index in range(8)))
        known = {
            "python": "3.12.4",
            "torch": "2.7.1a0+gitabcdef0",
            "lightning": LightningFacts(used="lightning", installed={"lightning": "2.5.5"}),
            "bridge": BridgeFacts(installed=True, loaded=True, version="1.22.0.740", mode="eager"),
            "findings": (Finding(source="bridge", place="the bridge", found="", devices=devices),),
            "usable": sum(device.is_operational for device in devices),
            "synapse": SynapseVersion(Version("1.22.0.740"), "habana-torch-plugin"),
        }
        return Facts(devices=devices, **{**known, **different})

    return make


@pytest.fixture
def bare_facts(facts: Callable[..., Facts]) -> Facts:
    """The facts of a machine with torch and Lightning and nothing of Gaudi."""
    return facts(
        devices=(),
        bridge=BridgeFacts(),
        synapse=None,
        findings=(
            Finding(source="bridge", place="the bridge", found="this process has not loaded it"),
            Finding(source="hl-smi", place="the command hl-smi", found="it is not on PATH"),
        ),
    )


@pytest.fixture
def simulated_facts(card: Callable[..., HPUDevice], facts: Callable[..., Facts]) -> Facts:
    """The facts of a machine with two simulated cards and stock torch."""
    bare = {"module_id": None, "pci_address": None, "driver_version": None, "memory_source": "generation"}
    return facts(
        devices=tuple(card(index, simulated=True, **bare) for index in range(2)),
        bridge=BridgeFacts(installed=True, loaded=True, simulated=True, version="1.22.0.740", mode="eager"),
        torch="2.13.0+cpu",
    )
