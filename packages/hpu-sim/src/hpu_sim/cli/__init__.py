"""Command-line interface ``hpu-sim``."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import click

from hpu_sim.__about__ import __version__
from hpu_sim.cli.building import build_device
from hpu_sim.cli.planning import mark_json, plan
from hpu_sim.device import machine_id
from hpu_sim.device.config import (
    DEFAULT_GENERATION,
    DEVICES_VARIABLE,
    GENERATION_VARIABLE,
    MEMORY_VARIABLE,
    RELEASE_VARIABLE,
    STRICT_VARIABLE,
    SimConfig,
)
from hpu_sim.device.machine_id import MACHINE_VARIABLE
from hpu_sim.process import signal_forwarding, subprocess_env


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
@click.option(
    "--machine",
    default=None,
    metavar="NAME",
    help="Share the cards of a machine with other runs that name it.  [default: a machine of its own]",
)
@click.option(
    "--strict/--no-strict",
    envvar=STRICT_VARIABLE,
    default=False,
    help="Fail, or show the difference, where a card refuses or does something else.",
)
@click.option("--quiet", is_flag=True, help="Print no summary of the report on stderr.")
@click.option("-m", "module", is_flag=True, help="Run SCRIPT as a module, like `python -m`.")
@click.argument("program", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(  # noqa: PLR0913 - one argument per option of the command line
    devices: str,
    generation: str,
    release: str | None,
    memory: str | None,
    machine: str | None,
    *,
    reports: tuple[Path, ...],
    strict: bool,
    quiet: bool,
    module: bool,
    program: str,
    arguments: tuple[str, ...],
) -> NoReturn:
    """Run a Python script or a command on simulated cards.

    SCRIPT, ARGUMENTS and the exit code are those of `python SCRIPT ARGUMENTS`. A SCRIPT that is not a file is a command
    on PATH, such as torchrun.
    """
    from hpu_sim.cli import recorded_run
    from hpu_sim.report import merge

    try:
        config = SimConfig.create(devices, generation, release, memory=memory or None, strict=strict)
        name = {} if machine is None else {MACHINE_VARIABLE: machine_id.parse_name(machine)}
        command = [*_find_program(program, module=module), *arguments]
        for path in reports:
            merge.check_report_path(path)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    build_device()
    os.environ.update(name)
    os.environ.update(subprocess_env.variables(config, os.environ))
    os.environ.update(machine_id.named_or_new(os.environ))
    if not reports:
        # With nothing to do afterwards, this process becomes the program.
        os.execv(command[0], command)  # noqa: S606 - no shell needed
    shown = [*(["-m"] if module else []), program, *arguments]
    exit_code = recorded_run.run(command, os.environ, reports, shown=shown, quiet=quiet)
    signal_forwarding.exit_like(exit_code)


def _find_program(program: str, *, module: bool) -> list[str]:
    """Return the start of the command line that runs a script, a module or a command.

    Raises:
        ValueError: If there is no such file or command.
    """
    if module:
        return [sys.executable, "-m", program]
    if Path(program).is_file():
        return [sys.executable, program]
    # Commands of this environment first, which need not be activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command = shutil.which(program, path=path)
    if command is None:
        raise ValueError(f"`script` must be an existing file or a command on PATH, got {program!r}")
    return [command]


main.add_command(plan)


class _ReportCommand(click.Command):
    """Command whose `--json` has a file only after an equals sign."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments."""
        return super().parse_args(ctx, mark_json(args))


@main.command(cls=_ReportCommand)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("reports", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "--json", "json_to", metavar="[FILE]", help="Print JSON instead of the summary, or write it to FILE.json."
)
def report(folder: Path, reports: tuple[Path, ...], json_to: str | None) -> None:
    """Write the report of a recorded run.

    FOLDER is the value that HPU_SIM_REPORT had during the run. Each FILE is .html or .json.
    Without a FILE, print the summary.
    """
    from hpu_sim.report import merge, view

    try:
        for path in reports:
            merge.check_report_path(path)
        gathered = merge.merge_records(folder, (), None)
        merge.write_report(gathered, reports)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if json_to is not None:
        with click.open_file(json_to, "w", encoding="utf-8") as file:
            file.write(merge.to_json(gathered))
    if not reports and json_to is None:
        click.echo(view.document(gathered).text(), nl=False)


@main.command()
def build() -> None:
    """Build the simulated device.

    Otherwise the first use builds it, in about half a minute.
    """
    click.echo(build_device())
