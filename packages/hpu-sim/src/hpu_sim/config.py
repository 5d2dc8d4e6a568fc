"""What is to be simulated: how many cards, of which generation, under which release and in which mode."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim import releases
from hpu_sim.memory_size import parse_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

DEVICES_VARIABLE: Final = "HPU_SIM_DEVICES"
GENERATION_VARIABLE: Final = "HPU_SIM_GENERATION"
RELEASE_VARIABLE: Final = "HPU_SIM_RELEASE"
MEMORY_VARIABLE: Final = "HPU_SIM_MEMORY"
LAZY_VARIABLE: Final = "PT_HPU_LAZY_MODE"
REPORT_VARIABLE: Final = "HPU_SIM_REPORT"
REPORT_DETAIL_VARIABLE: Final = "HPU_SIM_REPORT_DETAIL"

DEFAULT_GENERATION: Final = "GAUDI2"

#: Device memory per generation, in bytes: 32, 96 and 128 GiB. Source: Intel's product pages and `hl-smi` logs of HL-205
#: and HL-225.
MEMORY_BYTES: Final = {"GAUDI": 32 << 30, "GAUDI2": 96 << 30, "GAUDI3": 128 << 30}

#: More cards than any machine has; a larger number is a typing error.
MAX_DEVICES: Final = 64


@dataclass(frozen=True)
class SimConfig:
    """A simulated machine. Build it with :meth:`create` or :meth:`from_environment`, which check the values.

    Attributes:
        devices: Cards of the machine, of which each process takes one.
        generation: ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``.
        release: The SynapseAI release that is played.
        lazy: Whether operators pile up in graphs until a ``mark_step``, or run one by one.
        memory_bytes: Memory of one card, in bytes.
    """

    devices: int
    generation: str
    release: releases.Release
    lazy: bool
    memory_bytes: int

    @property
    def has_less_memory(self) -> bool:
        """Whether a card was given less memory than its generation has."""
        return self.memory_bytes < MEMORY_BYTES[self.generation]

    @classmethod
    def create(
        cls,
        devices: int | str = 1,
        generation: str = DEFAULT_GENERATION,
        release: str | None = None,
        *,
        lazy: str | None = None,
        memory: int | str | None = None,
    ) -> SimConfig:
        """Check the values and return the machine they describe.

        Args:
            devices: Number of cards, 1 to 64; text is read as a decimal number.
            generation: ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``, in any case.
            release: SynapseAI release, or None for the default.
            lazy: Value of ``PT_HPU_LAZY_MODE``: "0" is eager and anything else lazy, as the bridge reads it; None
                leaves it to the release.
            memory: Memory of a card, in bytes or as text such as ``"16GiB"``; None for what the generation has, which
                is also the most.

        Raises:
            ValueError: If a value is out of its range or unknown.
        """
        if generation.upper() not in MEMORY_BYTES:
            raise ValueError(f"`generation` must be one of {', '.join(MEMORY_BYTES)}, got {generation!r}")
        row = releases.find(release)
        most = MEMORY_BYTES[generation.upper()]
        return cls(
            devices=_parse_devices(devices),
            generation=generation.upper(),
            release=row,
            lazy=row.lazy if lazy is None else lazy != "0",
            memory_bytes=most if memory is None else parse_memory(memory, most),
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> SimConfig | None:
        """Return the machine that ``HPU_SIM_DEVICES`` and its companions describe, or None where it is unset or empty.

        Raises:
            ValueError: If a variable has a value out of its range or unknown.
        """
        devices = environment.get(DEVICES_VARIABLE, "")
        if not devices:
            return None
        return cls.create(
            devices,
            environment.get(GENERATION_VARIABLE) or DEFAULT_GENERATION,
            environment.get(RELEASE_VARIABLE) or None,
            lazy=environment.get(LAZY_VARIABLE),
            memory=environment.get(MEMORY_VARIABLE) or None,
        )

    def describe(self) -> str:
        """Return the machine in a few words, such as ``2 x GAUDI2 on SynapseAI 1.24.1, eager mode``."""
        memory = f" of {self.memory_bytes} bytes" if self.has_less_memory else ""
        mode = "lazy" if self.lazy else "eager"
        return f"{self.devices} x {self.generation}{memory} on SynapseAI {self.release.version}, {mode} mode"

    def environment(self) -> dict[str, str]:
        """Return the variables that give a child process the same machine."""
        return {
            DEVICES_VARIABLE: str(self.devices),
            GENERATION_VARIABLE: self.generation,
            RELEASE_VARIABLE: self.release.version,
            # Empty rather than the whole, so that a child may still ask for a generation with less.
            MEMORY_VARIABLE: str(self.memory_bytes) if self.has_less_memory else "",
        }


def _parse_devices(devices: int | str) -> int:
    text = str(devices)
    # Not every text that int() reads: " 2" and "1_0" are typing errors. 1.5 and True are no numbers of cards either.
    count = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= count <= MAX_DEVICES:
        raise ValueError(f"`devices` must be a number from 1 to {MAX_DEVICES}, got {devices!r}")
    return count


def lazy_variable() -> str | None:
    """Return the value of ``PT_HPU_LAZY_MODE``, or None where it is unset."""
    return os.environ.get(LAZY_VARIABLE)


def memory_variable() -> str | None:
    """Return the value of ``HPU_SIM_MEMORY``, or None where it is unset or empty."""
    return os.environ.get(MEMORY_VARIABLE) or None
