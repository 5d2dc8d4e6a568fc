"""The command `hpu-sim plan`."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from hpu_sim.cli.building import build_device
from hpu_sim.device import machine_id
from hpu_sim.device.config import DEFAULT_GENERATION, SimConfig
from hpu_sim.device.machine_id import MACHINE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hpu_sim.plan.options import Options

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_JSON: Final = "Print JSON instead of the table, or write it to FILE, which ends in .json."
_OF_SCRIPTS: Final = (
    "devices", "nodes", "strategy", "compare", "precision", "batch_size", "recompute", "compiled", "find_batch",
    "model",
)  # fmt: skip


def mark_json(arguments: Sequence[str]) -> list[str]:
    """Return arguments whose `--json` has a value: the file that follows it, if its name ends in ".json", or "-".

    >>> mark_json(["--json", "plan.json", "train.py"]), mark_json(["--json", "train.py"])
    (['--json=plan.json', 'train.py'], ['--json=-', 'train.py'])
    """
    found: list[str] = []
    for each in arguments:
        if found[-1:] == ["--json=-"] and each.endswith(".json"):
            found[-1] = f"--json={each}"
        else:
            found.append("--json=-" if each == "--json" else each)
    return found


class PlanCommand(click.Command):
    """`hpu-sim plan SCRIPT`.

    Options may follow a recording, which has no arguments of its own, but not a script.
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments of the command that the first one names."""
        from hpu_sim.prediction import recording_file

        if args and Path(args[0]).is_file() and recording_file.is_recording(Path(args[0])):
            # A recording has no arguments of its own: what follows are options of the plan.
            args = [*args[1:], args[0]]
        # Arguments of the script are its own.
        script = next((index for index, each in enumerate(args) if Path(each).suffix == ".py"), len(args))
        return super().make_context(info_name, [*mark_json(args[:script]), *args[script:]], parent, **extra)


def _numbers(value: str) -> tuple[int, ...]:
    """Return numbers with commas between them."""
    texts = value.split(",")
    if not all(each.isdecimal() for each in texts):
        raise click.BadParameter(f"must be numbers with commas between them, got {value!r}")
    return tuple(map(int, texts))


def _multiple(*names: str, help: str) -> Callable[[Any], Any]:  # noqa: A002 - click's name.
    """Return an option whose value is one number, or several that are planned in all combinations."""
    return click.option(*names, default=None, type=_numbers, metavar="N[,N]", help=help)


@click.command(cls=PlanCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
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
@click.option("--precision", default=None, metavar="P[,P]", help="Precision instead of the script's own.")
@_multiple("--batch-size", "--batch", help="Batch size per card instead of the script's.")
@_multiple("--recompute", help="Recompute the activations of so many blocks.")
@click.option("--compile", "compiled", is_flag=True, help="Plan the script as compiled by hpu_backend, in eager mode.")
@click.option("--find-batch", is_flag=True, help="Plan the largest batch size per card that fits.")
@click.option("--price", default="", metavar="P|G=P[,G=P]", help="Price of a card hour, or that of each generation.")
@click.option(
    "--hardware",
    default=None,
    type=_FILE,
    metavar="FILE",
    help='Figures of your own card: {"figures": {"launch_seconds": 1e-5}}.',
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a figure of the card, such as launch_seconds=1e-5 or memory_bytes=137438953472. Repeatable.",
)
@click.option(
    "--model",
    default=None,
    type=_FILE,
    metavar="FILE",
    help="Plan the model of a config.json of transformers instead of a SCRIPT.",
)
@click.option(
    "--length", default=2048, show_default=True, type=click.IntRange(1), help="Tokens of a sample of `--model`."
)
@click.option("--show-output", is_flag=True, help="Show what SCRIPT prints.  [default: only if it fails]")
@click.option("--html", "html", default=None, type=_NEW_FILE, metavar="FILE", help="Write a page.")
@click.option("--json", "json", default=None, metavar="[FILE]", help=_JSON)
@click.option(
    "--trace",
    "trace",
    default=None,
    type=_NEW_FILE,
    metavar="FILE",
    help="Write the predicted step as a Chrome trace for `hpu-profiler report FILE` and Perfetto.",
)
@click.option(
    "--save",
    "recording",
    default=None,
    type=_NEW_FILE,
    metavar="FILE",
    help="Write what was recorded: `hpu-sim plan FILE` plans it again, without SCRIPT, on other generations.",
)
@click.argument("program", metavar="SCRIPT", required=False, type=_FILE)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def plan(context: click.Context, /, **values: Any) -> None:
    """Predict memory and step time of a script on many cards.

    SCRIPT runs as one rank of NODES x DEVICES until its training steps are known, on simulated cards whose kernels
    never run: its tensors on cards have no data. SCRIPT may be a recording that an earlier plan saved. Options with
    several values, with commas between them, are planned in all combinations; those with several batches or
    numbers of recomputed blocks are listed with the best first.
    The exit code is 0 if a plan fits in memory, 1 if none does, and 2 if SCRIPT cannot be planned. Everything is
    predicted, and nothing is measured.
    """
    from hpu_sim.plan import command
    from hpu_sim.prediction import hardware, recording_file

    files = {name: values[name] for name in ("html", "json", "trace", "recording")}
    program: Path | None = values["program"]
    try:
        configs = [
            SimConfig.create(values["devices"], each.strip(), values["release"])
            for each in values["generation"].split(",")
        ]
        generations = tuple(each.generation for each in configs)
        hardware.set_figures(values["settings"], values["hardware"])
        prices = _prices(values["price"])
        if program is not None and recording_file.is_recording(program):
            _reject_given(context, _OF_SCRIPTS)
            recordings = recording_file.load(program)
            sys.exit(command.run_recordings(recordings, command.Request((), generations, prices, **files)))
        choices = _choices(values, command.STRATEGIES)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if (program is None) == (values["model"] is None):
        raise click.UsageError("there must be a SCRIPT, or a `--model`")
    if values["trace"] is not None and len(configs) * len(choices) > 1:
        raise click.UsageError(
            "`--trace` writes one step: there must be one generation and one choice, "
            f"got {len(configs)} and {len(choices)}"
        )
    arguments: Sequence[object] = values["arguments"]
    shown: tuple[str, ...] = ()
    if program is None:
        from hpu_sim.plan import model_program

        batch, length = str((values["batch_size"] or (1,))[0]), str(values["length"])
        program, arguments = Path(model_program.__file__), (values["model"], batch, length)
        shown = ("--model", str(values["model"]), "--length", length)
    # A machine of its own: a plan uses no device of another run.
    os.environ.pop(machine_id.RUNTIME_VARIABLE, None)
    os.environ[MACHINE_VARIABLE] = machine_id.new()
    build_device()
    is_multiple = any(len(values[name] or ()) > 1 for name in ("batch_size", "recompute"))
    request = command.Request(choices, generations, prices, values["find_batch"], is_multiple, shown, **files)
    given = tuple(map(str, arguments))
    sys.exit(command.run(configs[0], request, str(program), given, shows_output=values["show_output"]))


def _choices(values: dict[str, Any], compared: Sequence[str | None]) -> tuple[Options, ...]:
    """Return all combinations of what several values are given for.

    Raises:
        ValueError: If a batch is empty.
    """
    from hpu_sim.plan.options import Options

    strategies: Sequence[str | None] = compared if values["compare"] else [None]
    if values["strategy"]:
        strategies = [each.strip() for each in values["strategy"].split(",")]
    precisions = values["precision"].split(",") if values["precision"] else [None]
    choices = tuple(
        Options(
            values["devices"],
            values["nodes"],
            strategy,
            precision,
            batch,
            recomputed,
            compiled=values["compiled"],
        )
        for strategy, precision, batch, recomputed in itertools.product(
            strategies,
            precisions,
            values["batch_size"] or [None],
            values["recompute"] or [0],
        )
    )
    for each in choices:
        if each.batch_size == 0:
            raise ValueError("`--batch-size` must be at least 1, got 0")
    return choices


def _prices(text: str) -> dict[str, float]:
    """Return the price of a card hour by generation; "" stands for all others."""
    found = {}
    for part in text.split(",") if text else ():
        generation, _, price = part.rpartition("=")
        try:
            found[generation.strip().upper()] = float(price)
        except ValueError as error:
            raise ValueError(f"`--price` must be a number, or GENERATION=NUMBER with commas, got {text!r}") from error
    return found


def _reject_given(context: click.Context, names: Iterable[str]) -> None:
    """Refuse options that would need the script of a recording to run again."""
    given = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        options = {each.name: each.opts[0] for each in context.command.params}
        raise click.UsageError(f"`{options[given[0]]}` needs the script: a recording is what one choice of it did")
