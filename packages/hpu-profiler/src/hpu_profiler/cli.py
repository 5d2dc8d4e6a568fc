"""Command line of `hpu-profiler`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from hpu_profiler.__about__ import __version__
from hpu_profiler.analysis.job import analyze_job
from hpu_profiler.report.html import render_html
from hpu_profiler.report.json import to_dict
from hpu_profiler.report.text import print_report
from hpu_profiler.trace.reader import TraceError, find_traces, read_trace

__all__ = ["main", "report"]

#: Columns of the tables where the output is not a terminal.
_DEFAULT_WIDTH = 160


@click.group()
@click.version_option(__version__, prog_name="hpu-profiler")
def main() -> None:
    """Analyze traces from HPUProfiler or torch.profiler."""


@main.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write an HTML page to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with stable keys instead of tables.")
@click.option("--rows", default=15, show_default=True, type=click.IntRange(1), help="Number of operators to show.")
def report(traces: tuple[Path, ...], html: Path | None, as_json: bool, rows: int) -> None:
    """Report where the time goes in TRACES: files, or directories with *.pt.trace.json.

    Traces of several ranks are compared.
    """
    try:
        job = analyze_job(read_trace(path) for path in find_traces(traces))
        if html is not None:
            html.write_text(render_html(job), encoding="utf-8")
    except (OSError, TraceError) as error:
        click.echo(f"hpu-profiler: {error}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(json.dumps(to_dict(job), indent=2))
        return
    console = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _DEFAULT_WIDTH)
    print_report(console, job, row_limit=rows)
    if html is not None:
        click.echo(f"\nWrote {html}")
