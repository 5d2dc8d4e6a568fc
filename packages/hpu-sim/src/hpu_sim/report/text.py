"""The report as a short table for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpu_sim.report.findings import findings, limitations
from hpu_sim.report.formatting import format_bytes, format_int
from hpu_sim.report.source_lines import rank_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_sim.report.findings import Finding
    from hpu_sim.report.schema import RankRecord, Report

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
    named = zip(rank_labels(report), report.ranks, strict=True)
    rows = [_COLUMNS, *((name, *_row(record)) for name, record in named)]
    parts = [title, *_align(rows)]
    for finding in findings(report)[:MAX_FINDINGS]:
        parts += _lines_of(finding)
    parts += [f"  note: {limitation}" for limitation in limitations(report)]
    return "\n".join(parts) + "\n"


def _row(record: RankRecord) -> tuple[str, ...]:
    totals = record.totals
    graphs = [format_int(totals[name]) if record.machine.lazy else "-" for name in ("graphs", "recompilations")]
    copies = [
        f"{format_int(totals[f'{direction}_copies'])} ({format_bytes(totals[f'{direction}_bytes'])})"
        if totals[f"{direction}_copies"]
        else "0"
        for direction in ("h2d", "d2h")
    ]
    collectives = totals["collectives"]
    return (
        format_int(record.steps.finished),
        *graphs,
        format_int(totals["host_syncs"]),
        *copies,
        f"{format_int(collectives)} ({format_bytes(totals['collective_bytes'])})" if collectives else "0",
        f"{format_bytes(totals['peak_bytes'])} of {format_bytes(record.machine.memory_bytes)}",
    )


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _lines_of(finding: Finding) -> list[str]:
    shown = [f"  {finding.category}: {finding.title}"]
    for line in finding.lines[:MAX_LINES]:
        place = "no Python line" if line.frame is None else f"{_short(line.frame.file)}:{line.frame.line}"
        shown.append(f"    {place}  {line.frequency}: {line.description}")
    if len(finding.lines) > MAX_LINES:
        shown.append(f"    and {len(finding.lines) - MAX_LINES} more lines")
    if not finding.lines:
        shown.append(f"    {finding.recommendation}")
    return shown


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
