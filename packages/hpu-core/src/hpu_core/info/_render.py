"""The screen of `hpu-info`: plain ASCII, which every terminal and log can show, and nothing told by colour alone."""

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hpu_core.discovery import HPUDevice
from hpu_core.discovery._device import printable
from hpu_core.info._collect import Facts
from hpu_core.info._judge import Verdict

_GIB = 1024**3
_UNKNOWN = "-"


def render(console: Console, facts: Facts, verdict: Verdict) -> None:
    """Print the report.

    Args:
        console: Where to. Its width is respected from 60 columns on.
        facts: What was found.
        verdict: What it means.
    """
    if facts.bridge.simulated:
        console.print(_text("SIMULATED: the simulator plays these cards. No real Gaudi is used.", "bold"))
    console.print(_text(_heading(facts), "bold"))
    console.print(_cards(facts.devices) if facts.devices else _places(facts))
    console.print()
    console.print(_pairs(_software(facts, verdict)))
    console.print()
    for problem in verdict.problems:
        label, style = ("Stops training", "bold red") if problem.stops_training else ("Note", "bold yellow")
        console.print(_text(f"{label}: {problem.what}", style))
        console.print(Padding(_text(problem.todo), (0, 0, 0, 2)))
    console.print(_text(_conclusion(facts, verdict), "bold green" if verdict.can_train else "bold red"))


def _heading(facts: Facts) -> str:
    if not facts.devices:
        return "Gaudi cards: none found. Looked at:"
    if facts.usable is None:
        return f"Gaudi cards: {len(facts.devices)} found"
    limit = "" if facts.visible_modules is None else f" with HABANA_VISIBLE_MODULES={facts.visible_modules}"
    return f"Gaudi cards: {len(facts.devices)} found, {facts.usable} usable{limit}"


def _cards(devices: tuple[HPUDevice, ...]) -> Table:
    table = Table(box=box.ASCII, show_edge=False, pad_edge=False)
    for title in ("#", "Module", "PCI address", "Generation", "Memory", "Status", "Source"):
        # Folded rather than cut: rich marks a cut with a character that is not ASCII.
        table.add_column(title, overflow="fold")
    for device in devices:
        table.add_row(
            str(device.index),
            _UNKNOWN if device.module_id is None else str(device.module_id),
            device.pci_address or _UNKNOWN,
            device.generation or _UNKNOWN,
            _UNKNOWN if device.memory_bytes is None else f"{device.memory_bytes / _GIB:.0f} GiB",
            _text(device.status),
            "simulator" if device.simulated else device.source,
        )
    return table


def _places(facts: Facts) -> Table:
    return _pairs([("-", f"{finding.place}: {finding.found}") for finding in facts.findings])


def _software(facts: Facts, verdict: Verdict) -> list[tuple[str, str]]:
    """Return the versions, by the name of what they are versions of."""
    drivers = sorted({device.driver_version for device in facts.devices if device.driver_version})
    return [
        ("Driver", ", ".join(drivers) or _UNKNOWN),
        ("SynapseAI", f"{facts.synapse.version} (from {facts.synapse.source})" if facts.synapse else _UNKNOWN),
        ("Release", _release(verdict)),
        ("Bridge", _bridge(facts)),
        ("torch", facts.torch or "not installed"),
        ("Lightning", _lightning(facts)),
        ("Python", facts.python),
        ("hpu-core", facts.hpu_core),
    ]


def _release(verdict: Verdict) -> str:
    row = verdict.release
    if row is None:
        return "not told"
    parts = [f"{row.release}: torch {row.torch or 'unknown'}"]
    if row.mode:
        parts.append(f"{row.mode} mode")
    if row.generations:
        parts.append(" ".join(row.generations))
    return ", ".join(parts)


def _bridge(facts: Facts) -> str:
    bridge = facts.bridge
    if not bridge.installed:
        return "not installed"
    parts = ["simulated" if bridge.simulated else bridge.version or "unknown version"]
    parts.append("loaded" if bridge.loaded else "not loaded yet")
    if bridge.mode:
        parts.append(f"{bridge.mode} mode")
    return ", ".join(parts)


def _lightning(facts: Facts) -> str:
    installed = facts.lightning.installed
    if not installed:
        return "not installed"
    used = facts.lightning.used
    names = sorted(installed, key=lambda name: name != used)
    return ", ".join(f"{name} {installed[name]}{' (used)' if name == used else ''}" for name in names)


def _conclusion(facts: Facts, verdict: Verdict) -> str:
    if not verdict.can_train:
        return "Training cannot start."
    kind = "simulated card" if facts.bridge.simulated else "card"
    return f"Training can start on {facts.usable} {kind}{'' if facts.usable == 1 else 's'}."


def _pairs(pairs: list[tuple[str, str]]) -> Table:
    """Return two columns, of which the second wraps."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(_text(name), _text(value))
    return table


def _text(text: str, style: str = "") -> Text:
    # A Text, because markup in a driver's or a library's words must not be obeyed.
    return Text("\n".join(printable(line) if line.strip() else "" for line in text.splitlines()), style=style)
