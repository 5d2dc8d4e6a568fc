"""The installed SynapseAI release."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from hpu_core.discovery._device import HPUDevice

_RELEASE = re.compile(r"[0-9]{1,4}\.[0-9]{1,6}\.[0-9]{1,6}(?![0-9])")


@dataclass(frozen=True, slots=True)
class SynapseVersion:
    """A SynapseAI release and its source.

    Attributes:
        version: Release such as 1.24.1.482, or 1.24.1 if the build is unknown.
        source: "habana-torch-plugin" or "driver".
    """

    version: Version
    source: str


def find(plugin: str | None, devices: Sequence[HPUDevice]) -> SynapseVersion | None:
    """Return the release, None if it is unknown; see `hpu_core.discovery.synapse_release` for the order of sources."""
    if plugin is not None:
        with contextlib.suppress(InvalidVersion):
            return SynapseVersion(Version(plugin), "habana-torch-plugin")
    if any(device.simulated for device in devices):
        # The driver is this machine's, not the simulated one's.
        return None
    drivers = {release for device in devices if (release := driver_release(device.driver_version))}
    return SynapseVersion(drivers.pop(), "driver") if len(drivers) == 1 else None


def driver_release(driver_version: str | None) -> Version | None:
    """Return the SynapseAI release of a driver version such as "1.18.0-ee698fb", None if it has another format."""
    match = _RELEASE.match(driver_version or "")
    return Version(match[0]) if match else None
