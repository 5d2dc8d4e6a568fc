"""Fixtures for what `hpu_core.info` reports: cards and software of a machine, and a terminal without colours.

A conftest imports the ones that its tests use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from hpu_core.discovery import HPUDevice, SourceResult, SynapseVersion
from hpu_core.info import BridgeInfo, LightningInfo, SystemInfo

if TYPE_CHECKING:
    from collections.abc import Callable

_GIB = 1024**3


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables that select colours or a width other than 80 columns."""
    for name in ("COLUMNS", "FORCE_COLOR", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def make_card() -> Callable[..., HPUDevice]:
    """Return an operational Gaudi 2 with the fields given."""

    def make(index: int = 0, **different: Any) -> HPUDevice:
        known = {
            "module_id": index,
            "pci_address": f"0000:{index + 19}:00.0",
            "generation": "GAUDI2",
            "memory_bytes": 96 * _GIB,
            "status": "Operational",
            "driver_version": "1.22.0-1a2b3c4",
            "source": "bridge",
        }
        return HPUDevice(index=index, **{**known, **different})

    return make


@pytest.fixture
def make_system(make_card: Callable[..., HPUDevice]) -> Callable[..., SystemInfo]:
    """Return a machine with 8 devices on which everything matches SynapseAI 1.22.0, with the fields given."""

    def make(**different: Any) -> SystemInfo:
        devices = different.pop("devices", tuple(make_card(index) for index in range(8)))
        known = {
            "python": "3.12.4",
            "torch": "2.7.1a0+gitabcdef0",
            "lightning": LightningInfo(used="lightning", installed={"lightning": "2.5.5"}),
            "bridge": BridgeInfo(installed=True, loaded=True, version="1.22.0.740", mode="eager"),
            "sources": (SourceResult(source="bridge", location="the bridge", message="", devices=devices),),
            "usable": sum(device.is_operational for device in devices),
            "synapse": SynapseVersion(Version("1.22.0.740"), "habana-torch-plugin"),
        }
        return SystemInfo(devices=devices, **{**known, **different})

    return make


@pytest.fixture
def simulated_system(make_card: Callable[..., HPUDevice], make_system: Callable[..., SystemInfo]) -> SystemInfo:
    """A machine with two simulated devices and stock torch."""
    bare = {"module_id": None, "pci_address": None, "driver_version": None}
    return make_system(
        devices=tuple(make_card(index, simulated=True, **bare) for index in range(2)),
        bridge=BridgeInfo(installed=True, loaded=True, simulated=True, version="1.22.0.740", mode="eager"),
        torch="2.13.0+cpu",
    )
