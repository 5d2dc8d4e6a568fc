"""Device requirements of a marked test."""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpu_sim.device import runtime
from hpu_sim.device.config import DEFAULT_GENERATION, LAZY_VARIABLE, MEMORY_VARIABLE, STRICT_VARIABLE, SimConfig, is_on

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class DeviceRequirements:
    """Arguments of ``@pytest.mark.hpu(...)``; None means any.

    Attributes:
        devices: Number of devices.
        generation: "GAUDI", "GAUDI2" or "GAUDI3".
        release: SynapseAI release.
        lazy: Whether lazy mode is on.
    """

    devices: int | None = None
    generation: str | None = None
    release: str | None = None
    lazy: bool | None = None

    @classmethod
    def from_marker(cls, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> DeviceRequirements:
        """Return the requirements of a marker.

        Raises:
            TypeError: If there are positional or unknown arguments.
        """
        if arguments or not set(options) <= set(cls.__dataclass_fields__):
            raise TypeError(
                f"`pytest.mark.hpu` accepts the keyword arguments {', '.join(cls.__dataclass_fields__)}, "
                f"got {', '.join([*map(repr, arguments), *options])}"
            )
        return cls(**options)

    def config(self) -> SimConfig:
        """Return the machine to simulate, based on that of this process, if any.

        Raises:
            ValueError: If a requirement is invalid.
        """
        active = runtime.active_config() if runtime.is_active() else None
        if active is None:
            lazy = os.environ.get(LAZY_VARIABLE) if self.lazy is None else str(int(self.lazy))
            return SimConfig.create(
                1 if self.devices is None else self.devices,
                self.generation or DEFAULT_GENERATION,
                self.release,
                lazy=lazy,
                memory=os.environ.get(MEMORY_VARIABLE) or None,
                strict=is_on(os.environ, STRICT_VARIABLE),
            )
        lazy_here = active.lazy if self.lazy is None else self.lazy
        return SimConfig.create(
            active.devices if self.devices is None else self.devices,
            self.generation or active.generation,
            self.release or active.release.version,
            lazy=str(int(lazy_here)),
            memory=active.memory_bytes if self.generation in {None, active.generation} else None,
            strict=active.strict,
        )


def matches_process(config: SimConfig) -> bool:
    """Return whether this process simulates a machine."""
    return runtime.is_active() and runtime.active_config() == config


def skip_reason(requirements: DeviceRequirements) -> str | None:
    """Return why the devices of this machine do not meet the requirements; None if they do.

    Does not acquire a device.
    """
    from habana_frameworks.torch import hpu
    from habana_frameworks.torch.utils import experimental as htexp
    from habana_frameworks.torch.utils.internal import is_lazy

    devices = 1 if requirements.devices is None else requirements.devices
    count = hpu.device_count()
    if count < devices:
        return f"needs {devices} Gaudi cards, this machine has {count}"
    # "synDeviceGaudi2" and the like.
    kind = htexp._get_device_type()  # noqa: SLF001 - the only query that acquires no device
    generation = getattr(kind, "name", str(kind)).rpartition("synDevice")[2].upper()
    if requirements.generation is not None and requirements.generation.upper() != generation:
        return f"needs a {requirements.generation}, this machine has {generation}"
    build = importlib.metadata.version("habana-torch-plugin")
    if requirements.release is not None and not f"{build}.".startswith(f"{requirements.release}."):
        return f"needs SynapseAI {requirements.release}, this machine has {build}"
    if requirements.lazy is not None and requirements.lazy != is_lazy():
        value = os.environ.get("PT_HPU_LAZY_MODE")
        return f"needs PT_HPU_LAZY_MODE={int(requirements.lazy)}, this process has {value!r}"
    return None
