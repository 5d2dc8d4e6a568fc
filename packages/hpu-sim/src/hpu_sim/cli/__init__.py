"""Command-line interface ``hpu-sim``."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click
from click.core import ParameterSource

from hpu_sim.__about__ import __version__
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
from hpu_sim.plan.calibrate import PlanCommand
from hpu_sim.process import signal_forwarding, subprocess_env

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    help="Write a report of what would be slow or fail on a card to FILE.html or FILE.json, or the predicted step of "
    "rank 0 to FILE.trace.json. Repeatable.",
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
@click.option("--quiet", is_flag=True, help="Print no summary on stderr.")
@click.option("-m", "module", is_flag=True, help="Run SCRIPT as a module, like `python -m`.")
@click.argument("program", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(  # noqa: PLR0913 - one argument per option
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
    _build_device()
    os.environ.update(name)
    os.environ.update(subprocess_env.variables(config, os.environ))
    os.environ.update(machine_id.named_or_new(os.environ))
    if quiet and not reports:
        # With nothing to do afterwards, this process becomes the program.
        os.execv(command[0], command)  # noqa: S606 - no shell needed
    shown = [*(["-m"] if module else []), program, *arguments]
    signal_forwarding.exit_like(recorded_run.run(command, os.environ, reports, shown=shown, quiet=quiet))


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


_OPTIONS_OF_SCRIPTS: Final = (
    "devices",
    "nodes",
    "strategy",
    "compare",
    "precision",
    "batch_size",
    "rank",
    "compiled",
    "find_batch",
)


@main.command(cls=PlanCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--devices", default=1, show_default=True, type=click.IntRange(1, 8), help="Cards per box, 1 to 8.")
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1), help="Number of boxes.")
@click.option(
    "--generation",
    default=DEFAULT_GENERATION,
    show_default=True,
    metavar="G[,G]",
    help="Generations to compare: GAUDI, GAUDI2, GAUDI3.",
)
@click.option("--release", default=None, help="SynapseAI release.  [default: the newest well-known one]")
@click.option("--strategy", default=None, metavar="S[,S]", help="Strategies to compare instead of the script's own.")
@click.option("--compare", is_flag=True, help="Compare the script's strategy with DDP and ZeRO 1 to 3.")
@click.option("--precision", default=None, help="Precision instead of the script's own.")
@click.option("--batch-size", default=None, type=click.IntRange(1), help="Batch size per card instead of the script's.")
@click.option(
    "--rank",
    default=None,
    type=click.IntRange(0),
    help="Plan this rank alone.  [default: 0, and the last of each group if shards differ]",
)
@click.option("--compile", "compiled", is_flag=True, help="Plan the script as compiled by hpu_backend, in eager mode.")
@click.option("--find-batch", is_flag=True, help="Plan the largest batch size per card that fits.")
@click.option(
    "--samples",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="Show the time and card hours to train on N samples.",
)
@click.option(
    "--loader-rate",
    default=0.0,
    type=click.FloatRange(0),
    metavar="RATE",
    help="Plan for a loader, such as the card's decoder, that delivers RATE samples per second and card by itself.",
)
@click.option("--show-output", is_flag=True, help="Show what SCRIPT prints.  [default: only if it fails]")
@click.option(
    "--html", "html_path", default=None, type=click.Path(path_type=Path), metavar="FILE", help="Write a page."
)
@click.option(
    "--json", "json_path", default=None, type=click.Path(path_type=Path), metavar="FILE", help="Write the plan as JSON."
)
@click.option(
    "--trace",
    "trace_path",
    default=None,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the predicted step as a Chrome trace for `hpu-profiler report FILE` and Perfetto.",
)
@click.option(
    "--save",
    "recording_path",
    default=None,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write what was recorded: `hpu-sim plan FILE` plans it again, without SCRIPT, on other generations.",
)
@click.argument("program", metavar="SCRIPT", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def plan(  # noqa: PLR0913 - one argument per option
    context: click.Context,
    *,
    devices: int,
    nodes: int,
    generation: str,
    release: str | None,
    strategy: str | None,
    compare: bool,
    precision: str | None,
    batch_size: int | None,
    rank: int | None,
    compiled: bool,
    find_batch: bool,
    samples: int,
    loader_rate: float,
    show_output: bool,
    html_path: Path | None,
    json_path: Path | None,
    trace_path: Path | None,
    recording_path: Path | None,
    program: Path,
    arguments: tuple[str, ...],
) -> None:
    """Predict memory and step time of a script on many cards.

    SCRIPT runs as one rank of NODES x DEVICES until its training steps are known, on simulated cards whose kernels
    never run: its tensors on cards have no data. SCRIPT may be a recording that an earlier plan saved.
    The exit code is 0 if a plan fits in memory, 1 if none does, and 2 if SCRIPT cannot be planned. Everything is
    predicted, and nothing is measured.
    """
    from hpu_sim.plan import command
    from hpu_sim.plan.session import Options
    from hpu_sim.prediction import recording_file
    from hpu_sim.prediction.hardware import calibrated

    outputs = command.Outputs(html_path, json_path, trace_path, recording_path)
    try:
        configs = [SimConfig.create(devices, each.strip(), release) for each in generation.split(",")]
        calibrated(configs[0].generation)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if recording_file.is_recording(program):
        _refuse_given(context, _OPTIONS_OF_SCRIPTS)
        try:
            recordings = recording_file.load(program)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        options = Options(planned_samples=samples, loader_rate=loader_rate)
        sys.exit(command.run_recordings(recordings, [each.generation for each in configs], options, outputs))
    strategies: list[str | None] = [None]
    if strategy or compare:
        strategies = [each.strip() for each in strategy.split(",")] if strategy else list(command.COMPARED)
    if trace_path is not None and len(configs) * len(strategies) > 1:
        raise click.UsageError(
            "`--trace` writes one step: there must be one generation and one strategy, "
            f"got {len(configs)} and {len(strategies)}"
        )
    # A machine of its own: a plan uses no device of another run.
    os.environ.pop(machine_id.RUNTIME_VARIABLE, None)
    os.environ[MACHINE_VARIABLE] = machine_id.new()
    _build_device()
    if rank is not None and rank >= devices * nodes:
        raise click.UsageError(f"`--rank` must be below the number of ranks, {devices * nodes}, got {rank}")
    choices = [
        Options(
            devices,
            nodes,
            each,
            precision,
            batch_size,
            rank=rank or 0,
            only_rank=rank is not None,
            compiled=compiled,
            finds_batch=find_batch,
            planned_samples=samples,
            loader_rate=loader_rate,
        )
        for each in strategies
    ]
    code = command.run(
        configs,
        choices,
        str(program),
        arguments,
        shows_output=show_output,
        outputs=outputs,
    )
    sys.exit(code)


def _refuse_given(context: click.Context, names: Iterable[str]) -> None:
    """Refuse options that would need the script of a recording to run again."""
    given = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        options = {each.name: each.opts[-1] for each in context.command.params}
        raise click.UsageError(f"`{options[given[0]]}` needs the script: a recording is what one choice of it did")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("reports", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
def report(folder: Path, reports: tuple[Path, ...]) -> None:
    """Write the report of a recorded run.

    FOLDER is the value that HPU_SIM_REPORT had during the run. Each FILE is .html, .json or .trace.json.
    Without a FILE, print the summary.
    """
    from hpu_sim.report import merge, text

    try:
        for path in reports:
            merge.check_report_path(path)
        gathered = merge.merge_records(folder, (), None)
        merge.write_report(gathered, reports, folder)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
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
    from hpu_sim.device.build import BuildError, ensure_built

    try:
        return ensure_built().name
    except BuildError as error:
        raise click.ClickException(str(error)) from error
