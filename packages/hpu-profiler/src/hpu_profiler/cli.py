"""Command line of `hpu-profiler`."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from hpu_profiler.__about__ import __version__
from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.analysis.trace_diff import diff_jobs
from hpu_profiler.report.diff import print_diff
from hpu_profiler.report.html import render_html
from hpu_profiler.report.json import diff_to_list, to_dict
from hpu_profiler.report.server import create_server
from hpu_profiler.report.text import print_report
from hpu_profiler.trace.reader import TraceError, find_traces, read_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["diff", "main", "report", "serve"]

#: Columns of the tables where the output is not a terminal.
_DEFAULT_WIDTH = 160
_PATH = click.Path(path_type=Path)


@click.group()
@click.version_option(__version__, prog_name="hpu-profiler")
def main() -> None:
    """Analyze traces from HPUProfiler or torch.profiler."""


@main.command()
@click.argument("traces", nargs=-1, required=True, type=_PATH)
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write an HTML page to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with stable keys instead of tables.")
@click.option("--rows", default=15, show_default=True, type=click.IntRange(1), help="Number of operators to show.")
def report(traces: tuple[Path, ...], html: Path | None, as_json: bool, rows: int) -> None:
    """Report where the time goes in TRACES: files, or directories with *.pt.trace.json.

    Traces of several ranks are compared.
    """
    with _one_line_errors():
        job = _analyze(traces)
        if html is not None:
            html.write_text(render_html(job), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(to_dict(job), indent=2))
        return
    print_report(_console(), job, row_limit=rows)
    if html is not None:
        click.echo(f"\nWrote {html}")


@main.command()
@click.argument("before", type=_PATH)
@click.argument("after", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with stable keys instead of tables.")
@click.option("--rows", default=15, show_default=True, type=click.IntRange(1), help="Number of operators to show.")
def diff(before: Path, after: Path, as_json: bool, rows: int) -> None:
    """Compare the traces of two runs or releases: a file or a directory for each.

    Times are per step, so the runs may have different numbers of steps.
    """
    with _one_line_errors():
        jobs = _analyze([before]), _analyze([after])
        stages = diff_jobs(*jobs)
    if as_json:
        click.echo(json.dumps(diff_to_list(stages), indent=2))
    elif stages:
        click.echo(f"before: {jobs[0].device_title}; after: {jobs[1].device_title}")
        print_diff(_console(), stages, row_limit=rows)
    else:
        click.echo("The traces have no stage in common.")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--port",
    default=8771,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 for any free one.",
)
def serve(folder: Path, port: int) -> None:
    """List the runs in FOLDER in a web browser of this machine, and render their reports."""
    with _one_line_errors():
        server = create_server(folder, port)
    click.echo(f"http://{server.server_address[0]!s}:{server.server_address[1]}  (Ctrl+C ends)")
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


def _analyze(paths: Sequence[Path]) -> JobAnalysis:
    traces = [read_trace(path) for path in find_traces(paths)]
    if len({trace.predicted for trace in traces}) > 1:
        raise click.UsageError(
            "TRACES must have either predicted or measured times, got both: compare them with `hpu-profiler diff`"
        )
    return analyze_job(traces)


def _console() -> Console:
    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _DEFAULT_WIDTH)


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, TraceError) as error:
        click.echo(f"hpu-profiler: {error}", err=True)
        sys.exit(1)
