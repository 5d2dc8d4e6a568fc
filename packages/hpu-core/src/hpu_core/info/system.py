"""Devices and software of this machine. Collecting them opens no device and prints nothing."""

import importlib.metadata
import platform
import sys
from dataclasses import dataclass, field
from typing import Literal

from hpu_core import bridge, discovery, frameworks
from hpu_core.__about__ import __version__
from hpu_core.discovery import HPUDevice, SourceResult, SynapseVersion, VisibleModulesError, import_torch


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeInfo:
    """State of the Gaudi PyTorch bridge in this process, as the functions of `hpu_core.bridge` return it.

    `import torch` loads the bridge in eager mode. Its `mode` is None until it is loaded.
    """

    installed: bool = False
    loaded: bool = False
    simulated: bool = False
    version: str | None = None
    mode: Literal["lazy", "eager"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningInfo:
    """The installed Lightning.

    Attributes:
        used: Import name of the framework that hpu_core uses, None if it can use none.
        installed: Installed versions by import name.
        error: Why no framework can be used.
    """

    used: str | None = None
    installed: dict[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemInfo:
    """Devices and software of this machine; `hpu_core`, `python` and `torch` are versions.

    None means not installed, not set or unknown.

    Attributes:
        torch_error: Why torch cannot be imported.
        devices: Every device that was found.
        sources: Result of each source of discovery.
        visible_modules: Value of HABANA_VISIBLE_MODULES.
        visible_modules_error: Why that value is invalid.
        usable: Number of devices that this process may use, None if HABANA_VISIBLE_MODULES is invalid.
    """

    hpu_core: str = __version__
    python: str
    torch: str | None
    torch_error: str | None = None
    lightning: LightningInfo
    bridge: BridgeInfo
    devices: tuple[HPUDevice, ...] = ()
    sources: tuple[SourceResult, ...] = ()
    visible_modules: str | None = None
    visible_modules_error: str | None = None
    usable: int | None = 0
    synapse: SynapseVersion | None = None

    @property
    def driver_versions(self) -> tuple[str, ...]:
        """Different driver versions of the devices, sorted."""
        return tuple(sorted({device.driver_version for device in self.devices if device.driver_version}))


def collect() -> SystemInfo:
    """Collect the data."""
    torch_error = import_torch()
    result = discovery.scan()
    try:
        usable, visible_modules_error = len(discovery.usable_modules(result.devices)), None
    except VisibleModulesError as error:
        usable, visible_modules_error = None, str(error)
    return SystemInfo(
        python=platform.python_version(),
        torch=_torch_version(),
        torch_error=torch_error,
        lightning=_lightning_info(),
        bridge=BridgeInfo(
            installed=bridge.is_installed(),
            loaded=bridge.is_loaded(),
            simulated=bridge.is_simulated(),
            version=bridge.plugin_version(),
            mode=_mode(),
        ),
        devices=result.devices,
        sources=result.sources,
        visible_modules=discovery.visible_modules_text(),
        visible_modules_error=visible_modules_error,
        usable=usable,
        synapse=discovery.synapse_release(result.devices),
    )


def _mode() -> Literal["lazy", "eager"] | None:
    # `is_lazy` would import a bridge that is not loaded.
    if not bridge.is_loaded():
        return None
    try:
        return "lazy" if bridge.is_lazy() else "eager"
    except Exception:  # noqa: BLE001 - the report is useful without the mode of a broken bridge.
        return None


def _torch_version() -> str | None:
    version = getattr(sys.modules.get("torch"), "__version__", None)
    return str(version) if version is not None else _distribution_version("torch")


def _lightning_info() -> LightningInfo:
    versions = {name: _distribution_version(distribution) for name, distribution in frameworks.DISTRIBUTIONS.items()}
    installed: dict[str, str] = {name: version for name, version in versions.items() if version is not None}
    try:
        framework = frameworks.decide()
    except (ImportError, ValueError) as error:
        return LightningInfo(installed=installed, error=str(error))
    return LightningInfo(used=framework.name, installed={**installed, framework.name: str(framework.version)})


def _distribution_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
