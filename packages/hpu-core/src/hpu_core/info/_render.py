"""Text reports of `hpu-info`, in plain ASCII. Colour adds no information."""

from collections.abc import Sequence

from packaging.version import Version
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hpu_core.discovery import HPUDevice
from hpu_core.discovery._device import printable
from hpu_core.info._collect import SystemInfo
from hpu_core.info._diagnose import Diagnosis
from hpu_core.info._explain import Explanation

_GIB = 1024**3
_UNKNOWN = "-"


def render(console: Console, system: SystemInfo, diagnosis: Diagnosis) -> None:
    """Print the report.

    Args:
        console: Console to print to, at least 60 columns wide.
        system: Devices and software of the machine.
        diagnosis: Diagnosis of the machine.
    """
    if system.bridge.simulated:
        console.print(safe_text("SIMULATED: these are cards of the simulator. No real Gaudi is used.", "bold"))
    console.print(safe_text(_heading(system), "bold"))
    console.print(_device_table(system.devices) if system.devices else _source_table(system))
    console.print()
    console.print(two_columns(_software(system, diagnosis)))
    console.print()
    for problem in diagnosis.problems:
        label, style = ("Error", "bold red") if problem.blocks_training else ("Note", "bold yellow")
        console.print(safe_text(f"{label}: {problem.message}", style))
        console.print(Padding(safe_text(problem.hint), (0, 0, 0, 2)))
    console.print(safe_text(_summary(system, diagnosis), "bold green" if diagnosis.can_train else "bold red"))


def render_explanations(console: Console, explanations: Sequence[Explanation]) -> None:
    """Print explanations of errors.

    Args:
        console: Console to print to, at least 60 columns wide.
        explanations: The errors in the order of the report, at least one.
    """
    for index, found in enumerate(explanations):
        if index:
            console.print()
        more = f" (and {found.count - 1} more)" if found.count > 1 else ""
        console.print(safe_text(f"Line {found.line_number}{more}: {found.line}", "bold"))
        evidence = "reported from a real card" if found.error.on_card else "not reported from a real card"
        rows = [
            ("Cause", found.error.cause),
            ("Cure", found.error.cure),
            ("Source", f"{found.error.source} ({evidence})"),
        ]
        console.print(two_columns(rows))


def _heading(system: SystemInfo) -> str:
    if not system.devices:
        return "Gaudi cards: none found. Searched:"
    if system.usable is None:
        return f"Gaudi cards: {len(system.devices)} found"
    limit = "" if system.visible_modules is None else f" with HABANA_VISIBLE_MODULES={system.visible_modules}"
    return f"Gaudi cards: {len(system.devices)} found, {system.usable} usable{limit}"


def _device_table(devices: tuple[HPUDevice, ...]) -> Table:
    table = Table(box=box.ASCII, show_edge=False, pad_edge=False)
    for title in ("#", "Module", "PCI address", "Generation", "Memory", "Status", "Source"):
        # rich marks truncated text with a character that is not ASCII.
        table.add_column(title, overflow="fold")
    for device in devices:
        table.add_row(
            str(device.index),
            _UNKNOWN if device.module_id is None else str(device.module_id),
            device.pci_address or _UNKNOWN,
            device.generation or _UNKNOWN,
            _UNKNOWN if device.memory_bytes is None else f"{device.memory_bytes / _GIB:.0f} GiB",
            safe_text(device.status),
            "simulator" if device.simulated else device.source,
        )
    return table


def _source_table(system: SystemInfo) -> Table:
    return two_columns([("-", f"{source.location}: {source.message}") for source in system.sources])


def _software(system: SystemInfo, diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Return names and versions."""
    drivers = sorted({device.driver_version for device in system.devices if device.driver_version})
    return [
        ("Driver", ", ".join(drivers) or _UNKNOWN),
        ("SynapseAI", f"{system.synapse.version} (from {system.synapse.source})" if system.synapse else _UNKNOWN),
        ("Release", _release(diagnosis)),
        ("Bridge", _bridge(system)),
        ("torch", _torch(system)),
        ("Lightning", _lightning(system)),
        ("Python", system.python),
        ("hpu-core", system.hpu_core),
    ]


def _release(diagnosis: Diagnosis) -> str:
    row = diagnosis.release
    if row is None:
        return "unknown"
    parts = [f"{row.release}: torch {row.torch or 'unknown'}"]
    if row.mode:
        parts.append(f"{row.mode} mode")
    if row.generations:
        parts.append(" ".join(row.generations))
    return ", ".join(parts)


def _bridge(system: SystemInfo) -> str:
    bridge = system.bridge
    if not bridge.installed:
        return "not installed"
    parts = ["simulated" if bridge.simulated else bridge.version or "unknown version"]
    parts.append("loaded" if bridge.loaded else "not loaded yet")
    if bridge.mode:
        parts.append(f"{bridge.mode} mode")
    return ", ".join(parts)


def _torch(system: SystemInfo) -> str:
    tested = system.bridge.max_torch_version
    if system.torch is None:
        return "not installed"
    if tested is None or Version(system.torch).release[:2] <= Version(tested).release:
        return system.torch
    return f"{system.torch}, newer than {tested}, the newest that the simulator is tested with"


def _lightning(system: SystemInfo) -> str:
    installed = system.lightning.installed
    if not installed:
        return "not installed"
    used = system.lightning.used
    names = sorted(installed, key=lambda name: name != used)
    return ", ".join(f"{name} {installed[name]}{' (used)' if name == used else ''}" for name in names)


def _summary(system: SystemInfo, diagnosis: Diagnosis) -> str:
    if not diagnosis.can_train:
        return "Training cannot start."
    kind = "simulated card" if system.bridge.simulated else "card"
    return f"Training can start on {system.usable} {kind}{'' if system.usable == 1 else 's'}."


def two_columns(rows: list[tuple[str, str]]) -> Table:
    """Return a table of which the second column wraps."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(safe_text(name), safe_text(value))
    return table


def safe_text(text: str, style: str = "") -> Text:
    """Return text in printable ASCII, whose markup is not interpreted."""
    # Text instead of str, because rich would interpret markup in messages of drivers and libraries.
    return Text("\n".join(printable(line) if line.strip() else "" for line in text.splitlines()), style=style)
