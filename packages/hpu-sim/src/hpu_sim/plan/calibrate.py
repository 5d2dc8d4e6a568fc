"""The command `hpu-sim plan calibrate`: ranges of a user's own card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hpu_sim.common.formatting import align
from hpu_sim.device.config import DEFAULT_GENERATION

if TYPE_CHECKING:
    from hpu_sim.prediction.calibration import Narrowed

_NAME: Final = "calibrate"


class PlanCommand(click.Command):
    """`hpu-sim plan SCRIPT`, and `hpu-sim plan calibrate FILE` where no script of this name exists.

    Options may follow a recording, which has no arguments of its own, but not a script.
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments of the command that the first one names."""
        from hpu_sim.prediction import recording_file

        if args[:1] == [_NAME] and not Path(_NAME).exists():
            return calibrate.make_context(f"{info_name} {_NAME}", args[1:], parent, **extra)
        if args and Path(args[0]).is_file() and recording_file.is_recording(Path(args[0])):
            # A recording has no arguments of its own: what follows are options of the plan.
            args = [*args[1:], args[0]]
        return super().make_context(info_name, args, parent, **extra)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--generation",
    default=DEFAULT_GENERATION,
    show_default=True,
    type=click.Choice(["GAUDI", "GAUDI2", "GAUDI3"]),
    help="Generation of the card.",
)
@click.option(
    "--plan",
    "plan_path",
    default=None,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Plan of the same program, from `hpu-sim plan --json`.",
)
@click.option(
    "--output",
    default="calibration.hpu-sim.json",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write.",
)
def calibrate(file: Path, generation: str, plan_path: Path | None, output: Path) -> None:
    """Narrow the ranges of a plan by measurements of your own card.

    FILE is the JSON of `hpu-profiler report --json` for a real step, or calibration.json of `hpu-doctor verify`.
    Plans use the output if HPU_SIM_CALIBRATION names it.
    """
    from hpu_sim.prediction import calibration

    plan = json.loads(plan_path.read_text(encoding="utf-8")) if plan_path is not None else None
    try:
        found = calibration.calibrate(json.loads(file.read_text(encoding="utf-8")), generation, plan)
    except (ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"cannot calibrate with {file}: {error}") from error
    if not found:
        raise click.ClickException(
            f"{file} has nothing that narrows a range of {generation}: it needs collectives within a box, or `--plan`"
        )
    output.write_text(calibration.to_json(found, generation), encoding="utf-8")
    click.echo("\n".join(align([("figure", "all cards", "this card", "points", ""), *map(_row, found)])))
    click.echo(f"Wrote {output}. Plans use it with HPU_SIM_CALIBRATION={output}")


def _row(each: Narrowed) -> tuple[str, ...]:
    note = "outside of the range of all cards" if each.is_outside else ""
    return each.name, _show(each.before), _show(each.after), str(each.points), note


def _show(ends: tuple[float, float]) -> str:
    low, high = sorted(ends)
    return f"{low:.3g} to {high:.3g}"
