"""Configuration of the simulated machine: devices, generation, release, mode and memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.data import releases
from hpu_sim.device.memory_size import parse_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

DEVICES_VARIABLE: Final = "HPU_SIM_DEVICES"
GENERATION_VARIABLE: Final = "HPU_SIM_GENERATION"
RELEASE_VARIABLE: Final = "HPU_SIM_RELEASE"
MEMORY_VARIABLE: Final = "HPU_SIM_MEMORY"
#: Whether the device is as asynchronous as a card.
ASYNC_VARIABLE: Final = "HPU_SIM_ASYNC"
#: Whether the host waits for each operator and copy of an asynchronous device.
BLOCKING_VARIABLE: Final = "HPU_SIM_BLOCKING"
STRICT_VARIABLE: Final = "HPU_SIM_STRICT"
PLACE_ON_CPU_VARIABLE: Final = "PT_HPU_PLACE_ON_CPU"
LAZY_VARIABLE: Final = "PT_HPU_LAZY_MODE"
REPORT_VARIABLE: Final = "HPU_SIM_REPORT"

DEFAULT_GENERATION: Final = "GAUDI2"

#: Device memory per generation, in bytes: 32, 96 and 128 GiB. Source: Intel's product pages and `hl-smi` logs of HL-205
#: and HL-225.
MEMORY_BYTES: Final = {"GAUDI": 32 << 30, "GAUDI2": 96 << 30, "GAUDI3": 128 << 30}

#: Above any real machine; a larger number is a typing error.
MAX_DEVICES: Final = 64
# int() raises another error for thousands of digits.
_MAX_DIGITS: Final = 9


@dataclass(frozen=True)
class SimConfig:
    """Simulated machine, made by :meth:`create` or :meth:`from_environment`, which validate the values.

    Attributes:
        devices: Number of devices of the machine. Each process acquires one.
        generation: ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``.
        release: Simulated SynapseAI release.
        lazy: Whether operators are collected into graphs until ``mark_step``, or run one by one.
        memory_bytes: Memory of one device, in bytes.
        strict: Whether what a card refuses or does otherwise fails or shows itself here.
    """

    devices: int
    generation: str
    release: releases.Release
    lazy: bool
    memory_bytes: int
    strict: bool = False

    @property
    def has_less_memory(self) -> bool:
        """Whether a device has less memory than its generation."""
        return self.memory_bytes < MEMORY_BYTES[self.generation]

    @classmethod
    def create(  # noqa: PLR0913 - one argument per property
        cls,
        devices: int | str = 1,
        generation: str = DEFAULT_GENERATION,
        release: str | None = None,
        *,
        lazy: str | None = None,
        memory: int | str | None = None,
        strict: bool = False,
    ) -> SimConfig:
        """Validate the values, those of :func:`hpu_sim.activate`, and return the machine that they describe.

        Args:
            devices: Number of devices, also in decimal digits.
            generation: Generation, in any case.
            release: SynapseAI release.
            lazy: Value of ``PT_HPU_LAZY_MODE``: "0" selects eager mode and anything else lazy mode, as in the bridge;
                None selects the release's default.
            memory: Memory of a device; None for all that the generation has.
            strict: Whether the device is strict.

        Raises:
            ValueError: If a value is out of its range or unknown.
        """
        if generation.upper() not in MEMORY_BYTES:
            raise ValueError(f"`generation` must be one of {', '.join(MEMORY_BYTES)}, got {generation!r}")
        row = releases.find(release)
        limit = MEMORY_BYTES[generation.upper()]
        return cls(
            devices=_parse_devices(devices),
            generation=generation.upper(),
            release=row,
            lazy=row.lazy if lazy is None else lazy != "0",
            memory_bytes=limit if memory is None else parse_memory(memory, limit),
            strict=strict,
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> SimConfig | None:
        """Return the machine of ``HPU_SIM_DEVICES`` and related variables; None if it is unset or empty.

        Raises:
            ValueError: If a variable has a value out of its range or unknown.
        """
        devices = environment.get(DEVICES_VARIABLE, "")
        if not devices:
            return None
        try:
            return cls.create(
                devices,
                environment.get(GENERATION_VARIABLE) or DEFAULT_GENERATION,
                environment.get(RELEASE_VARIABLE) or None,
                lazy=environment.get(LAZY_VARIABLE),
                memory=environment.get(MEMORY_VARIABLE) or None,
                strict=is_on(environment, STRICT_VARIABLE),
            )
        except ValueError as error:
            # `devices` is HPU_SIM_DEVICES, and so on.
            text = re.sub(r"^`(\w+)`", lambda match: f"HPU_SIM_{match[1].upper()}", str(error))
            raise ValueError(text) from None

    def describe(self) -> str:
        """Return a short description, such as ``2 x GAUDI2 on SynapseAI 1.24.1, eager mode``."""
        memory = f" of {self.memory_bytes} bytes" if self.has_less_memory else ""
        mode = "lazy" if self.lazy else "eager"
        strict = ", strict" if self.strict else ""
        return f"{self.devices} x {self.generation}{memory} on SynapseAI {self.release.version}, {mode} mode{strict}"

    def environment(self) -> dict[str, str]:
        """Return the variables that give a subprocess the same machine."""
        return {
            DEVICES_VARIABLE: str(self.devices),
            GENERATION_VARIABLE: self.generation,
            RELEASE_VARIABLE: self.release.version,
            # Full memory is left empty: a subprocess may select a generation that has less.
            MEMORY_VARIABLE: str(self.memory_bytes) if self.has_less_memory else "",
            STRICT_VARIABLE: "1" if self.strict else "",
        }


def _parse_devices(devices: int | str) -> int:
    text = str(devices)
    # Stricter than int(), which accepts " 2", "1_0", 1.5 and True.
    count = int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else 0
    if not 1 <= count <= MAX_DEVICES:
        raise ValueError(f"`devices` must be a number from 1 to {MAX_DEVICES}, got {devices!r}")
    return count


def is_on(environment: Mapping[str, str], variable: str) -> bool:
    """Return whether a variable such as ``HPU_SIM_STRICT`` is set to anything but 0."""
    return environment.get(variable, "") not in {"", "0"}
