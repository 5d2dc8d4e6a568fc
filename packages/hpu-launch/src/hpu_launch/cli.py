"""The command `hpu-launch`: the command, batch script or manifest that starts a job, for each engine."""

import configparser
import dataclasses
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hpu_core.command_line import COULD_NOT_RUN
from hpu_launch import kubernetes, mpirun, ray, slurm, torchrun
from hpu_launch.__about__ import __version__
from hpu_launch.job import JobSpec, Launch

__all__ = ["main"]

_ENGINES = {
    "torchrun": torchrun.launch,
    "mpirun": mpirun.launch,
    "slurm": slurm.launch,
    "kubernetes": kubernetes.launch_with_torchrun,
    "kubernetes-mpi": kubernetes.launch_with_mpirun,
    "ray": ray.launch,
}
_HOSTS = re.compile(r"(?:[\w.:-]|\[[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*\])+", re.ASCII)
# Variable with the path of the profile.
_PROFILE = "HPU_LAUNCH_PROFILE"
_OPTIONS: dict[str, Mapping[str, Any]] = {
    each.name: each.metadata for each in dataclasses.fields(JobSpec) if each.metadata
}


class _MissingEngineError(click.ClickException):
    exit_code = COULD_NOT_RUN


def _read_profile(context: click.Context, _: click.Parameter, path: str | None) -> None:
    """Take defaults of the options from a file: those of all engines, and those of the engine's own section."""
    if path is None:
        return
    # Values may have the % of a date.
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), default_section="")
    try:
        with Path(path).open(encoding="utf-8") as file:
            parser.read_file(file)
    except (OSError, UnicodeError, configparser.Error) as error:
        raise click.UsageError(f"`--profile` must be an INI file, got {path!r}: {error}") from error
    parameters = {
        option.removeprefix("--"): parameter for parameter in context.command.params for option in parameter.opts
    }
    defaults: dict[str, dict[str, Any]] = {}
    for section in parser.sections():
        if section not in {"all", *_ENGINES}:
            raise click.UsageError(f"a section of the profile must be [all] or [ENGINE], got [{section}] in {path!r}")
        for name, text in parser[section].items():
            parameter = parameters.get(name)
            if not isinstance(parameter, click.Option) or name in {"profile", "run", "version", "help"}:
                raise click.UsageError(f"a line of the profile must be one of the options, got {name!r} in {path!r}")
            # One value a line.
            value: Any = [line for line in text.splitlines() if line] if parameter.multiple else text
            defaults.setdefault(section, {})[str(parameter.name)] = value
    context.default_map = defaults.get("all", {})
    context.obj = defaults


def _job_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a job to a command, in their order."""
    for name, option in reversed(_OPTIONS.items()):
        flag = option["flag"] or f"--{name.replace('_', '-')}"
        function = click.option(flag, name, **option["settings"])(function)
    return function


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--profile",
    is_eager=True,
    expose_value=False,
    callback=_read_profile,
    envvar=_PROFILE,
    metavar="FILE",
    help=f"INI file with defaults of options, in [all] and [ENGINE].  [env var: {_PROFILE}]",
)
@click.option("--engine", type=click.Choice(list(_ENGINES)), help="What starts the ranks.  [default: what is found]")
@_job_options
@click.option("--run", is_flag=True, help="Run the command, or submit the script or manifest, instead of printing it.")
@click.option("--no-checks", is_flag=True, help="Run without checking this machine first.")
@click.version_option(__version__, prog_name="hpu-launch")
@click.argument("script", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """Print how to start SCRIPT with ARGUMENTS on Gaudi cards, with a comment for each line.

    The Trainer or Fabric of the script needs the same numbers: `devices=DEVICES, num_nodes=NODES`.
    """
    options |= _profile_defaults(context, options["engine"] or _detect_engine(options))
    engine, run, no_checks = (options.pop(name) for name in ("engine", "run", "no_checks"))
    _check_unused_options(context, engine)
    try:
        hosts = _expand_hosts(options.pop("hosts"))
        nodes = options.pop("nodes")
        pairs = {name: _pairs(name, options.pop(name)) for name in ("environment", "node_selector")}
        nodes = max(1, len(hosts)) if nodes is None else nodes
        launch = _ENGINES[engine](JobSpec(nodes=nodes, hosts=hosts, **options | pairs))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not run:
        click.echo(launch.text)
        return
    if launch.runs_here and not no_checks:
        _check_machine()
    code = _run(launch)
    if launch.status and code == 0:
        click.echo(f"hpu-launch: submitted; its state: `{launch.status}`", err=True)
    sys.exit(code)


def _detect_engine(options: Mapping[str, Any]) -> str:
    """Return the engine that the options or this machine name, and say why on standard error."""
    engine, reason = "torchrun", "no other one is found"
    if options["image"] is not None:
        engine, reason = "kubernetes", "`--image` is given"
    elif options["hosts"]:
        engine, reason = "mpirun", "`--hosts` is given"
    elif shutil.which("sbatch"):
        engine, reason = "slurm", "`sbatch` is on PATH"
    elif os.environ.get("RAY_ADDRESS"):
        engine, reason = "ray", "RAY_ADDRESS is set"
    click.echo(f"hpu-launch: --engine {engine}, because {reason}", err=True)
    return engine


def _profile_defaults(context: click.Context, engine: str) -> dict[str, Any]:
    """Return the engine's defaults of the profile for options that are not given."""
    found: dict[str, Any] = {"engine": engine}
    for parameter in context.command.params:
        text = (context.obj or {}).get(engine, {}).get(parameter.name)
        given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if text is not None and not given:
            found[str(parameter.name)] = parameter.type_cast_value(context, text)
    return found


def _pairs(name: str, values: Sequence[str]) -> dict[str, str]:
    """Return the names and values of "NAME=VALUE"; a variable without a value has that of this process.

    Raises:
        ValueError: A value is missing.
    """
    pairs = {}
    for text in values:
        key, separator, value = text.partition("=")
        if not separator and name == "environment":
            if key not in os.environ:
                raise ValueError(f"`--env {key}` must be a variable that is set here, or {key}=VALUE")
            separator, value = "=", os.environ[key]
        if not separator or not key:
            raise ValueError(f"`--node-selector` must be KEY=VALUE, got {text!r}")
        pairs[key] = value
    return pairs


def _expand_hosts(text: str) -> tuple[str, ...]:
    """Return the host names of a list such as "rack[1-2]-node[001-004,7],login".

    Raises:
        ValueError: A name is empty or has other characters than those of host names, or a range is not ascending.
    """
    if not text:
        return ()
    hosts: list[str] = []
    # Commas between brackets belong to the ranges.
    for entry in re.split(r",(?![^\[]*\])", text):
        if not _HOSTS.fullmatch(entry):
            raise ValueError(f"`--hosts` must list host names as node-1,node-2 or node-[001-128,130], got {entry!r}")
        # Texts at even places, ranges at odd ones.
        parts = re.split(r"\[([^]]*)\]", entry)
        choices = [_expand_range(part) if index % 2 else [part] for index, part in enumerate(parts)]
        hosts += ["".join(words) for words in itertools.product(*choices)]
    return tuple(hosts)


def _expand_range(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ValueError(f"a range of `--hosts` must be ascending, got {part!r}")
        numbers += [f"{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1)]
    return numbers


def _check_unused_options(context: click.Context, engine: str) -> None:
    """Raise an error for an option that the engine does not use.

    Raises:
        click.UsageError: There is one.
    """
    for parameter in context.command.params:
        name = str(parameter.name)
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        engines = [repr(other) for other in _OPTIONS.get(name, {}).get("engines", ())]
        if given and engines and repr(engine) not in engines:
            raise click.UsageError(
                f"`{parameter.opts[0]}` must be left out with `--engine {engine}`, which does not use it: it is for "
                f"{' and '.join(filter(None, [', '.join(engines[:-1]), engines[-1]]))}"
            )


def _check_machine() -> None:
    """Run hpu-doctor where it is installed, else hpu-info, and print its report if training cannot start here.

    Raises:
        click.ClickException: It cannot.
    """
    module = "hpu_doctor" if importlib.util.find_spec("hpu_doctor") else "hpu_core.info"
    # A process of its own: the import of the bridge sets MASTER_ADDR and others, which the engine must not inherit.
    done = subprocess.run([sys.executable, "-m", module], stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own.
    if done.returncode == 0:
        return
    click.echo(done.stdout, err=True)
    raise click.ClickException("training cannot start on this machine; `--no-checks` starts it nevertheless")


def _run(launch: Launch) -> int:
    """Run a launch, and return its exit code."""
    try:
        if not launch.reads_text:
            # Signals and the exit code are those of the engine.
            if not launch.status:
                os.execvp(launch.command[0], launch.command)  # noqa: S606 - the engine that the user named.
            return subprocess.run(launch.command, check=False).returncode  # noqa: S603 - as above.
        return subprocess.run(launch.command, input=launch.text, text=True, check=False).returncode  # noqa: S603 - as above.
    except FileNotFoundError as error:
        raise _MissingEngineError(f"`{launch.command[0]}` is not installed on this machine") from error
