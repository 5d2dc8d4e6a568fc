"""Command-line interface ``hpu-sim``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from hpu_sim import signal_forwarding, subprocess_env
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
    """Run Gaudi code on simulated cards. Results are the CPU's; timings are not a card's."""


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--devices", envvar=DEVICES_VARIABLE, default="1", show_default=True, help="Number of cards, 1 to 64.")
@click.option(
    "--generation",
    envvar=GENERATION_VARIABLE,
    default=DEFAULT_GENERATION,
    show_default=True,
    help="Generation of the cards: GAUDI, GAUDI2 or GAUDI3.",
)
@click.option(
    "--release",
    envvar=RELEASE_VARIABLE,
    default=None,
    help="SynapseAI release to simulate.  [default: the newest well-known one]",
)
@click.option(
    "--memory",
    envvar=MEMORY_VARIABLE,
    default=None,
    help="Memory of a card, such as 16GiB.  [default: that of the generation]",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a report of what would be slow or fail on a card to FILE.html or FILE.json. Repeatable.",
)
@click.option("--quiet", is_flag=True, help="Print no summary on stderr.")
@click.option("-m", "module", is_flag=True, help="Run SCRIPT as a module, like `python -m`.")
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
    """Run a Python script on simulated cards.

    SCRIPT, ARGUMENTS and the exit code are those of `python SCRIPT ARGUMENTS`.
    """
    from hpu_sim.report import merge, runner

    try:
        config = SimConfig.create(devices, generation, release, memory=memory or None)
        for path in reports:
            merge.check_report_path(path)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not module and not Path(script).is_file():
        raise click.UsageError(f"`script` must be an existing file, got {script!r}")
    _build_device()
    os.environ.update(subprocess_env.variables(config, os.environ))
    command = [sys.executable, *(["-m"] if module else []), script, *arguments]
    if quiet and not reports:
        # With nothing to do afterwards, this process becomes the interpreter.
        os.execv(sys.executable, command)  # noqa: S606 - no shell needed
    signal_forwarding.exit_like(runner.run(command, os.environ, reports, quiet=quiet))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("reports", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
def report(folder: Path, reports: tuple[Path, ...]) -> None:
    """Write the report of a recorded run.

    FOLDER is the value that HPU_SIM_REPORT had during the run. Each FILE is .html or .json. Without a FILE, print the
    summary.
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
    """Build the simulated device.

    Otherwise the first use builds it, in about half a minute.
    """
    click.echo(_build_device())


def _build_device() -> str:
    # Here a missing compiler is one sentence; in the script it would be a traceback out of `import torch`.
    os.environ.pop(DEVICES_VARIABLE, None)
    from hpu_sim.build import BuildError, build_key, load_extension

    try:
        load_extension()
    except BuildError as error:
        raise click.ClickException(str(error)) from error
    return build_key()
