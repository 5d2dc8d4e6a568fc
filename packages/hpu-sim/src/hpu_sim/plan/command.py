"""The command `hpu-sim plan`, after its options are validated."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from hpu_sim import activation
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.runner import DOES_NOT_FIT
from hpu_sim.plan.session import Options, record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpu_sim.config import SimConfig


def run(  # noqa: PLR0913 - one argument per option
    configs: Sequence[SimConfig],
    nodes: int,
    strategies: Sequence[str | None],
    program: str,
    arguments: Sequence[str],
    *,
    precision: str | None,
    batch_size: int | None,
    json_path: Path | None,
) -> int:
    """Plan a program, print the table and return the exit code.

    Args:
        configs: Simulated machine of each generation.
        nodes: Number of boxes.
        strategies: Strategies; None for the program's own.
        program: Python file.
        arguments: Its arguments.
        precision: Precision that replaces the program's; None for its own.
        batch_size: Batch size that replaces the program's; None for its own.
        json_path: File for the JSON; None for none.

    Raises:
        click.ClickException: If the program cannot be planned.
    """
    first = configs[0]
    activation.activate(first.devices, first.generation, first.release.version)

    from hpu_sim.plan import compare, text

    recordings = []
    for strategy in strategies:
        options = Options(first.devices, nodes, strategy, precision, batch_size)
        try:
            recordings.append(record(program, arguments, options))
        except PlanError as error:
            raise click.ClickException(str(error)) from error
    plan = compare.make_plan(recordings, [each.generation for each in configs])
    if json_path is not None:
        json_path.write_text(json.dumps(plan.to_dict(), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(text.render(plan))
    return 0 if plan.fits else DOES_NOT_FIT
