"""The report as a short table for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpu_sim.report.findings import findings, gaps
from hpu_sim.report.lines import names_of
from hpu_sim.report.units import grouped, in_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_sim.report.findings import Finding
    from hpu_sim.report.model import RankRecord, Report

#: Findings, and lines of each, that a terminal shows.
MAX_FINDINGS: Final = 5
MAX_LINES: Final = 3

_COLUMNS: Final = (
    "rank",
    "steps",
    "graphs",
    "recompiled",
    "host syncs",
    "to card",
    "to host",
    "collectives",
    "peak memory",
)


def render(report: Report) -> str:
    """Return the table, with the worst findings below it where lines were recorded; it ends with a line break."""
    if not report.ranks:
        return "hpu-sim: no process used a simulated card\n"
    machine = report.ranks[0].machine
    mode = "lazy" if machine.lazy else "eager"
    title = f"hpu-sim: {machine.devices} x {machine.generation}, SynapseAI {machine.release}, {mode} mode (simulated)"
    named = zip(names_of(report), report.ranks, strict=True)
    rows = [_COLUMNS, *((name, *_row(record)) for name, record in named)]
    parts = [title, *_align(rows)]
    for finding in findings(report)[:MAX_FINDINGS]:
        parts += _lines_of(finding)
    parts += [f"  note: {gap}" for gap in gaps(report)]
    return "\n".join(parts) + "\n"


def _row(record: RankRecord) -> tuple[str, ...]:
    totals = record.totals
    graphs = [grouped(totals[name]) if record.machine.lazy else "-" for name in ("graphs", "recompilations")]
    copies = [
        f"{grouped(totals[f'{way}_copies'])} ({in_bytes(totals[f'{way}_bytes'])})" if totals[f"{way}_copies"] else "0"
        for way in ("h2d", "d2h")
    ]
    collectives = totals["collectives"]
    return (
        grouped(record.steps.finished),
        *graphs,
        grouped(totals["host_syncs"]),
        *copies,
        f"{grouped(collectives)} ({in_bytes(totals['collective_bytes'])})" if collectives else "0",
        f"{in_bytes(totals['peak_bytes'])} of {in_bytes(record.machine.memory_bytes)}",
    )


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _lines_of(finding: Finding) -> list[str]:
    shown = [f"  {finding.severity}: {finding.title}"]
    for line in finding.lines[:MAX_LINES]:
        place = "no Python line" if line.frame is None else f"{_short(line.frame.file)}:{line.frame.line}"
        shown.append(f"    {place}  {line.frequency}: {line.meaning}")
    if len(finding.lines) > MAX_LINES:
        shown.append(f"    and {len(finding.lines) - MAX_LINES} more lines")
    if not finding.lines:
        shown.append(f"    {finding.advice}")
    return shown


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
