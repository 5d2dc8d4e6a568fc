"""Command line of `hpu-profiler`."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from hpu_core.command_line import COULD_NOT_RUN, mark_json, write_json
from hpu_profiler.__about__ import __version__
from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.report.json import to_dict
from hpu_profiler.report.text import print_report
from hpu_profiler.trace.reader import find_traces, read_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["main", "report"]

#: Columns of the tables where the output is not a terminal.
_DEFAULT_WIDTH = 160
#: Operators on a page.
_PAGE_ROWS = 60
_FILE = click.Path(path_type=Path, dir_okay=False)
_PATH = click.Path(path_type=Path)


class _Group(click.Group):
    """Group of commands whose `--json` has a file only after an equals sign."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, those of the command included."""
        return super().parse_args(ctx, mark_json(args))


@click.group(cls=_Group)
@click.version_option(__version__, prog_name="hpu-profiler")
def main() -> None:
    """Analyze traces from HPUProfiler or torch.profiler."""


@main.command()
@click.argument("traces", nargs=-1, required=True, type=_PATH)
@click.option("--html", type=_FILE, help="Also write the report as an HTML page to this file.")
@click.option(
    "--json", "json_to", metavar="[=FILE]", help="Print JSON instead of tables, or write it to a file (--json=FILE)."
)
@click.option("--rows", default=15, show_default=True, type=click.IntRange(1), help="Number of operators to show.")
def report(traces: tuple[Path, ...], html: Path | None, json_to: str | None, rows: int) -> None:
    """Report where the time goes in TRACES: files, or directories with *.pt.trace.json.

    Traces of several ranks are compared.
    """
    with _one_line_errors():
        job = _analyze(traces)
        if html is not None:
            _write_page(job, html)
    if json_to:
        with _one_line_errors():
            write_json(to_dict(job), json_to)
        return
    print_report(_console(), job, row_limit=rows)
    if html is not None:
        click.echo(f"\nWrote {html}")


def _analyze(paths: Sequence[Path]) -> JobAnalysis:
    job = analyze_job(map(read_trace, find_traces(paths)))
    if len({trace.predicted for trace in job.traces}) > 1:
        raise click.UsageError("TRACES must have either predicted or measured times, got both: report on each")
    return job


def _write_page(job: JobAnalysis, path: Path) -> None:
    console = Console(file=io.StringIO(), record=True, highlight=False, width=_DEFAULT_WIDTH)
    print_report(console, job, row_limit=_PAGE_ROWS)
    path.write_text(console.export_html(), encoding="utf-8")


def _console() -> Console:
    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _DEFAULT_WIDTH)


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        click.echo(f"hpu-profiler: {error}", err=True)
        sys.exit(COULD_NOT_RUN)
