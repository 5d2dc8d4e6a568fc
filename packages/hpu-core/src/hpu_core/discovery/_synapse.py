"""Which SynapseAI release is installed here, found out without opening a card."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from hpu_core.discovery import _hl_smi
from hpu_core.discovery._device import HPUDevice

_RELEASE = re.compile(r"[0-9]{1,4}\.[0-9]{1,6}\.[0-9]{1,6}(?![0-9])")


@dataclass(frozen=True, slots=True)
class SynapseVersion:
    """A SynapseAI release and who told it.

    Attributes:
        version: Such as 1.24.1.482, or 1.24.1 where the build is not told.
        source: "habana-torch-plugin", "hl-smi" or "driver".
    """

    version: Version
    source: str


def synapse_release(
    plugin: str | None,
    devices: Sequence[HPUDevice],
    hl_smi: Callable[[], Version | None] = _hl_smi.release,
) -> SynapseVersion | None:
    """Find the release; see `hpu_core.discovery.synapse_version` for the order.

    Args:
        plugin: The version of the distribution habana-torch-plugin, if it is installed.
        devices: The cards of this machine.
        hl_smi: Asks hl-smi for its release.
    """
    if plugin is not None and (version := _parsed(plugin)):
        return SynapseVersion(version, "habana-torch-plugin")
    if any(device.simulated for device in devices):
        # What else is installed here says nothing about the release that the simulator plays.
        return None
    if version := hl_smi():
        return SynapseVersion(version, "hl-smi")
    drivers = {release for device in devices if (release := driver_release(device.driver_version))}
    return SynapseVersion(drivers.pop(), "driver") if len(drivers) == 1 else None


def driver_release(driver_version: str | None) -> Version | None:
    """Return the SynapseAI release that a driver version such as "1.18.0-ee698fb" belongs to, if it tells."""
    match = _RELEASE.match(driver_version or "")
    return Version(match[0]) if match else None


def _parsed(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
