"""The command `hpu-profiler`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from hpu_profiler.__about__ import __version__
from hpu_profiler.report import text
from hpu_profiler.report.analysis import report as make_report
from hpu_profiler.report.as_json import as_json
from hpu_profiler.trace.reading import TraceError, find, read


@click.group()
@click.version_option(__version__, prog_name="hpu-profiler")
def main() -> None:
    """Look at what HPUProfiler, or torch's own profiler, recorded."""


@main.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write the report to this file.")
@click.option("--json", "wants_json", is_flag=True, help="Print the report as JSON, with stable keys.")
@click.option("--rows", default=15, show_default=True, type=click.IntRange(1), help="Operators to show.")
def report(traces: tuple[Path, ...], html: Path | None, wants_json: bool, rows: int) -> None:
    """Show where time goes in TRACES: files, or folders of *.pt.trace.json; those of several ranks are compared."""
    try:
        made = make_report([read(path) for path in find(traces)])
        if html is not None:
            from hpu_profiler.report.html import render

            html.write_text(render(made), encoding="utf-8")
    except (OSError, TraceError) as error:
        click.echo(f"hpu-profiler: {error}", err=True)
        sys.exit(1)
    if wants_json:
        click.echo(json.dumps(as_json(made), indent=2))
    else:
        # As wide as its tables where nobody watches, so that a log or a pipe gets whole lines.
        console = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 160)
        text.show(console, made, limit=rows)
        if html is not None:
            click.echo(f"\nThe page is {html}")
