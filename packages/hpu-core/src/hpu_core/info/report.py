"""Report of `hpu-info`, plain ASCII text."""

import importlib.util
import textwrap
from collections.abc import Sequence
from typing import Final

from hpu_core.discovery import HPUDevice, printable
from hpu_core.info.system import SystemInfo
from hpu_core.install_hints import install_command

_GIB: Final = 1024**3
_UNKNOWN: Final = "-"
_TITLES: Final = ("devices=", "Module", "PCI address", "Generation", "Memory", "Status", "Source")


def to_text(system: SystemInfo, *, width: int = 80) -> str:
    """Return the report as text, in which sentences wrap at `width` columns; the table of cards has up to 78."""
    lines = ["SIMULATED: these are cards of the simulator. No real Gaudi is used."] if system.bridge.simulated else []
    lines.append(_heading(system))
    if system.devices:
        lines += _device_table(system.devices)
    else:
        lines += [
            line for source in system.sources for line in _wrap(f"{source.location}: {source.message}", width, "- ")
        ]
    lines.append("")
    for name, value in _versions(system):
        lines += _wrap(value, width, f"{name:<10}")
    lines += ["", *_wrap(_next_command(system), width, "Next: ")]
    return "\n".join(lines)


def _wrap(text: str, width: int, label: str = "") -> list[str]:
    indent = " " * len(label)
    return textwrap.wrap(printable(text), width, initial_indent=label, subsequent_indent=indent, break_on_hyphens=False)


def _heading(system: SystemInfo) -> str:
    if not system.devices:
        return "Gaudi cards: none found. Searched:"
    if system.usable is None:
        return f"Gaudi cards: {len(system.devices)} found, and {system.visible_modules_error}"
    limit = "" if system.visible_modules is None else f" with HABANA_VISIBLE_MODULES={system.visible_modules}"
    return f"Gaudi cards: {len(system.devices)} found, {system.usable} usable{limit}"


def _device_table(devices: Sequence[HPUDevice]) -> list[str]:
    rows = [_TITLES, *map(_cells, devices)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [" | ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [lines[0], "-+-".join("-" * width for width in widths), *lines[1:]]


def _cells(device: HPUDevice) -> tuple[str, ...]:
    return (
        _UNKNOWN if device.index is None else str(device.index),
        _UNKNOWN if device.module_id is None else str(device.module_id),
        device.pci_address or _UNKNOWN,
        device.generation or _UNKNOWN,
        _UNKNOWN if device.memory_bytes is None else f"{device.memory_bytes / _GIB:.0f} GiB",
        printable(device.status),
        "simulator" if device.simulated else device.source,
    )


def _versions(system: SystemInfo) -> list[tuple[str, str]]:
    """Return names and versions."""
    return [
        ("Driver", ", ".join(system.driver_versions) or _UNKNOWN),
        ("SynapseAI", f"{system.synapse.version} (from {system.synapse.source})" if system.synapse else _UNKNOWN),
        ("Bridge", _bridge(system)),
        ("torch", _torch(system)),
        ("Lightning", _lightning(system)),
        ("Python", system.python),
        ("hpu-core", system.hpu_core),
    ]


def _bridge(system: SystemInfo) -> str:
    bridge = system.bridge
    if not bridge.installed:
        return "not installed"
    version = "simulated" if bridge.simulated else bridge.version or "unknown version"
    mode = f"{bridge.mode} mode" if bridge.mode else None
    return ", ".join(filter(None, (version, "loaded" if bridge.loaded else "not loaded yet", mode)))


def _torch(system: SystemInfo) -> str:
    if system.torch_error is not None:
        return f"cannot be imported: {system.torch_error}"
    return system.torch or "not installed"


def _lightning(system: SystemInfo) -> str:
    installed, used = system.lightning.installed, system.lightning.used
    names = sorted(installed, key=lambda name: name != used)
    return ", ".join(f"{name} {installed[name]}{' (used)' * (name == used)}" for name in names) or "not installed"


def _next_command(system: SystemInfo) -> str:
    """Return the command that helps where there are cards, or the one that needs none."""
    command, package, reason = "hpu-sim run train.py", "hpu-sim", "needs no card; `hpu-doctor` says why none is found"
    if system.devices:
        command, package, reason = "hpu-doctor", "hpu-doctor", "finds what prevents training"
    is_installed = importlib.util.find_spec(package.replace("-", "_")) is not None
    return f"`{command}`{'' if is_installed else f' ({install_command(package)})'} {reason}."
