"""Text report: tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hpu_profiler._formatting import format_time
from hpu_profiler.report import tables

if TYPE_CHECKING:
    from rich.console import Console

    from hpu_profiler.analysis.findings import Finding
    from hpu_profiler.analysis.host_sync import SyncSite
    from hpu_profiler.analysis.job import JobAnalysis, StageAnalysis


def print_report(console: Console, job: JobAnalysis, *, row_limit: int) -> None:
    """Print the report."""
    traces = f"{len(job.traces)} trace{'s' if len(job.traces) != 1 else ''}"
    console.print(Text(f"hpu-profiler: {traces}, {job.device_title}"))
    for note in job.notes:
        console.print(Text(f"Note: {note}"))
    for stage in job.stages:
        console.print(Text(f"\nStage {stage.title}: {format_time(stage.step_time)} per step", style="bold"))
        for finding in stage.findings:
            _print_finding(console, finding, stage)
        for table in (tables.ranks(stage), *tables.details(stage, max_operators=row_limit)):
            print_table(console, table)


def format_saving(finding: Finding) -> str:
    """Return the saving of a finding as text."""
    saving = f"Saves {format_time(finding.saving)} per step"
    if finding.predicted:
        return f"{saving} of predicted time"
    return saving + (" of simulated time" if finding.simulated else "")


def format_site(site: SyncSite, steps: int) -> str:
    """Return a call of a finding about host-device synchronizations as text."""
    where = f" at {site.location}" if site.location else f" in {site.action}" if site.action else ""
    times = format_time(site.time / steps if steps else site.time)
    return f"{site.name}{where}: {site.calls} calls in {steps} steps, {times} per step"


def _print_finding(console: Console, finding: Finding, stage: StageAnalysis) -> None:
    console.print(Padding(Text(finding.title, style="bold"), (0, 0, 0, 2), expand=False))
    where = f" At {finding.location}." if finding.location else ""
    cause = f" {finding.cause}" if finding.cause else ""
    text = f"{format_saving(finding)}.{where}{cause} {finding.cure}"
    steps = max(each.steps for each in stage.traces)
    lines = [text, *(format_site(site, steps) for site in finding.sites)]
    console.print(Padding(Text("\n".join(lines)), (0, 0, 0, 4), expand=False))


def print_table(console: Console, table: tables.Table) -> None:
    """Print a table, with its title unless that is empty."""
    title = f"\n{table.title}" if table.title else None
    printed = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(table.columns):
        is_name = index < table.names
        printed.add_column(column, justify="left" if is_name else "right", no_wrap=not is_name)
    for row in table.rows:
        # Text, because names from a trace may look like rich's markup.
        printed.add_row(*map(Text, row))
    console.print(printed)
