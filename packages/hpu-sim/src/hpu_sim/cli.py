"""The ``hpu-sim`` command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from hpu_sim import children, supervision
from hpu_sim.__about__ import __version__
from hpu_sim.config import (
    DEFAULT_GENERATION,
    DEVICES_VARIABLE,
    GENERATION_VARIABLE,
    MEMORY_VARIABLE,
    RELEASE_VARIABLE,
    SimConfig,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hpu-sim")
def main() -> None:
    """Run Gaudi code on simulated cards: the numbers are the CPU's, nothing is timed like a card."""


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--devices", envvar=DEVICES_VARIABLE, default="1", show_default=True, help="Cards of the machine, 1 to 64."
)
@click.option(
    "--generation",
    envvar=GENERATION_VARIABLE,
    default=DEFAULT_GENERATION,
    show_default=True,
    help="GAUDI, GAUDI2 or GAUDI3.",
)
@click.option(
    "--release",
    envvar=RELEASE_VARIABLE,
    default=None,
    help="SynapseAI release to play.  [default: the newest known well]",
)
@click.option(
    "--memory",
    envvar=MEMORY_VARIABLE,
    default=None,
    help="Memory of a card, such as 16GiB.  [default: what the generation has]",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write what would be slow or break on a card, with its lines, to FILE.html or FILE.json; may be repeated.",
)
@click.option("--quiet", is_flag=True, help="Show no table on stderr at the end.")
@click.option("-m", "module", is_flag=True, help="SCRIPT is the name of a module, as in `python -m`.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(  # noqa: PLR0913 - one argument per option
    devices: str,
    generation: str,
    release: str | None,
    memory: str | None,
    *,
    reports: tuple[Path, ...],
    quiet: bool,
    module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> NoReturn:
    """Run SCRIPT with ARGUMENTS as `python` would, on simulated cards."""
    from hpu_sim.report import merge, runner

    try:
        config = SimConfig.create(devices, generation, release, memory=memory or None)
        for path in reports:
            merge.check_report_path(path)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not module and not Path(script).is_file():
        raise click.UsageError(f"`script` must be a file, there is none at {script!r}")
    _prepare_device()
    os.environ.update(children.variables(config, os.environ))
    command = [sys.executable, *(["-m"] if module else []), script, *arguments]
    if quiet and not reports:
        # The interpreter itself, in this very process: arguments, exit code, signals and child processes are those of
        # `python SCRIPT`.
        os.execv(sys.executable, command)  # noqa: S606 - no shell wanted
    supervision.end_like(runner.run(command, os.environ, reports, quiet=quiet))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("reports", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
def report(folder: Path, reports: tuple[Path, ...]) -> None:
    """Make a report of what processes recorded in FOLDER, which HPU_SIM_REPORT named while they ran.

    Writes each FILE, .html or .json; without one, shows the table.
    """
    from hpu_sim.report import merge, text

    try:
        for path in reports:
            merge.check_report_path(path)
        gathered = merge.merge_records(folder, (), None)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    merge.write_report(gathered, reports)
    if not reports:
        click.echo(text.render(gathered), nl=False)


@main.command()
def build() -> None:
    """Build the device ahead of its first use, in a container image for one."""
    click.echo(_prepare_device())


def _prepare_device() -> str:
    # Before the script starts, so that a missing compiler is one sentence rather than a traceback out of `import
    # torch`.
    os.environ.pop(DEVICES_VARIABLE, None)
    from hpu_sim.build import BuildError, build_key, load_extension

    try:
        load_extension()
    except BuildError as error:
        raise click.ClickException(str(error)) from error
    return build_key()
