"""What a test's marker asks for, and whether this process can offer it."""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpu_sim import runtime
from hpu_sim.config import DEFAULT_GENERATION, SimConfig, lazy_variable, memory_variable

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class DeviceRequirements:
    """What ``@pytest.mark.hpu(...)`` asks for; None takes what there is.

    Attributes:
        devices: Cards of the machine.
        generation: "GAUDI", "GAUDI2" or "GAUDI3".
        release: SynapseAI release.
        lazy: Whether operators are collected in graphs.
    """

    devices: int | None = None
    generation: str | None = None
    release: str | None = None
    lazy: bool | None = None

    @classmethod
    def create(cls, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> DeviceRequirements:
        """Read the marker.

        Raises:
            TypeError: If it has positional arguments or unknown ones.
        """
        if arguments or not set(options) <= set(cls.__dataclass_fields__):
            raise TypeError(
                f"`pytest.mark.hpu` takes the keywords {', '.join(cls.__dataclass_fields__)}, "
                f"got {', '.join([*map(repr, arguments), *options])}"
            )
        return cls(**options)

    def config(self) -> SimConfig:
        """Return the simulated machine: this process's, where there is one, but for what is asked for.

        Raises:
            ValueError: If something is asked for that no machine is.
        """
        active = runtime.active_config() if runtime.is_active() else None
        if active is None:
            lazy = lazy_variable() if self.lazy is None else str(int(self.lazy))
            return SimConfig.create(
                1 if self.devices is None else self.devices,
                self.generation or DEFAULT_GENERATION,
                self.release,
                lazy=lazy,
                memory=memory_variable(),
            )
        lazy_here = active.lazy if self.lazy is None else self.lazy
        return SimConfig.create(
            active.devices if self.devices is None else self.devices,
            self.generation or active.generation,
            self.release or active.release.version,
            lazy=str(int(lazy_here)),
            memory=active.memory_bytes if self.generation in {None, active.generation} else None,
        )


def matches_process(config: SimConfig) -> bool:
    """Return whether this process is that machine."""
    return runtime.is_active() and runtime.active_config() == config


def skip_reason(requirements: DeviceRequirements) -> str | None:
    """Return why the cards of this machine are not those that a test asks for; None if they are.

    It takes no card.
    """
    from habana_frameworks.torch import hpu
    from habana_frameworks.torch.utils import experimental as htexp
    from habana_frameworks.torch.utils.internal import is_lazy

    devices = 1 if requirements.devices is None else requirements.devices
    count = hpu.device_count()
    if count < devices:
        return f"needs {devices} Gaudi cards, this machine has {count}"
    # "synDeviceGaudi2" and the like.
    kind = htexp._get_device_type()  # noqa: SLF001 - the only query that takes no card
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
