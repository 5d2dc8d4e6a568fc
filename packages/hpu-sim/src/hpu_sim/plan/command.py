"""The command `hpu-sim plan`, after its options are validated."""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback as traceback_module
from typing import TYPE_CHECKING, Final

import click

from hpu_sim.common import frames
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.execution import record
from hpu_sim.plan.runner import CANNOT_PLAN, DOES_NOT_FIT
from hpu_sim.process import activation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hpu_sim.device.config import SimConfig
    from hpu_sim.plan.schema import StrategyPlan
    from hpu_sim.plan.session import Options
    from hpu_sim.prediction.recording import Recording

#: Strategies of `--compare`; None is the program's own.
COMPARED: Final = (None, "auto", "deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3")


class Planner:
    """Plans of a program, which runs again for each choice that changes what it does."""

    def __init__(self, program: str, arguments: Sequence[str]) -> None:
        self._program = program
        self._arguments = arguments
        self._recordings: dict[Options, Recording] = {}

    def record(self, options: Options) -> Recording:
        """Return the recording with the options; a stage of ZeRO is modelled around data-parallel training."""
        from hpu_sim.prediction import zero

        if options.strategy in zero.STAGES:
            return zero.apply(self.record(dataclasses.replace(options, strategy="auto")), options.strategy)
        if options not in self._recordings:
            self._recordings[options] = record(self._program, self._arguments, options)
        return self._recordings[options]


def run(  # noqa: PLR0913 - one argument per option
    configs: Sequence[SimConfig],
    choices: Sequence[Options],
    program: str,
    arguments: Sequence[str],
    *,
    finds_batch: bool = False,
    html_path: Path | None = None,
    json_path: Path | None = None,
    trace_path: Path | None = None,
) -> int:
    """Plan a program, print the table and return the exit code.

    Args:
        configs: Simulated machine of each generation.
        choices: What to plan.
        program: Python file.
        arguments: Its arguments.
        finds_batch: Whether to plan the largest batch that fits.
        html_path: File for the page; None for none.
        json_path: File for the JSON; None for none.
        trace_path: File for the Chrome trace of the first plan's step; None for none.

    Returns:
        0 if a plan fits, 1 if none does, 2 if the program cannot be planned.
    """
    first = configs[0]
    activation.activate(first.devices, first.generation, first.release.version)

    from hpu_sim.plan import compare, html, text
    from hpu_sim.prediction import chrome_trace

    planner = Planner(program, arguments)
    trace = None
    try:
        plans = _make_plans(planner, choices, [each.generation for each in configs], finds_batch=finds_batch)
        plan = compare.make_plan(planner.record(choices[0]).command, [each for _, each in plans])
        if trace_path is not None:
            traced = planner.record(dataclasses.replace(plans[0][0], rank=plan.strategies[0].rank))
            trace = chrome_trace.trace_of_recording(traced, first.generation)
    except PlanError as error:
        click.echo(f"Error: {error}", err=True)
        return CANNOT_PLAN
    except Exception as error:  # noqa: BLE001 - the program's own, of any class
        click.echo(_describe_error(error), err=True)
        return CANNOT_PLAN
    if html_path is not None:
        html_path.write_text(html.render(plan), encoding="utf-8")
    if json_path is not None:
        json_path.write_text(json.dumps(plan.to_dict(), indent=1) + "\n", encoding="utf-8")
    if trace_path is not None:
        trace_path.write_text(json.dumps(trace) + "\n", encoding="utf-8")
    sys.stdout.write(text.render(plan))
    return 0 if plan.fits else DOES_NOT_FIT


def _describe_error(error: Exception) -> str:
    """Return the program's part of an error's traceback, and what to do."""
    traceback = error.__traceback__
    while traceback is not None and not frames.is_program(traceback.tb_frame):
        traceback = traceback.tb_next
    text = "".join(traceback_module.format_exception(type(error), error, traceback or error.__traceback__, chain=False))
    message, *_ = str(error).splitlines() or [""]
    raised = f"{type(error).__name__}: {message}".rstrip(": .")
    return (
        f"{text}Error: the program raised {raised}, before its training steps were known. If it runs with "
        "`hpu-sim run`, the plan is at fault"
    )


def with_ranks(
    record: Callable[[Options], Recording], options: Options, recording: Recording, generation: str
) -> StrategyPlan:
    """Return the plan of the rank with most memory, of the recorded one and the last one of each group."""
    from hpu_sim.plan import compare
    from hpu_sim.prediction import zero

    plans = [compare.strategy_plan(recording, generation)]
    # The model of ZeRO is that of any rank.
    if not options.only_rank and recording.strategy not in zero.STAGES:
        others = (record(dataclasses.replace(options, rank=rank)) for rank in compare.representatives(recording))
        plans += [compare.strategy_plan(other, generation) for other in others]
    worst = max(plans, key=lambda plan: plan.memory.peak_bytes)
    return dataclasses.replace(worst, ranks=tuple(rank for plan in plans for rank in plan.ranks))


def _make_plans(
    planner: Planner, choices: Sequence[Options], generations: Sequence[str], *, finds_batch: bool
) -> list[tuple[Options, StrategyPlan]]:
    """Return the options and the plan of each strategy and generation."""
    from hpu_sim.plan import search

    plans = []
    seen = set()
    for options in choices:
        for generation in generations:
            chosen, recording = options, planner.record(options)
            if (recording.strategy, generation) in seen:
                continue
            seen.add((recording.strategy, generation))
            if finds_batch and (found := search.find_batch(planner.record, options, generation)) is not None:
                chosen, recording = found
            plan = with_ranks(planner.record, chosen, recording, generation)
            if not plan.fits and len(choices) == 1:
                advice = search.advise(planner.record, chosen, recording, generation)
                plan = dataclasses.replace(plan, advice=advice)
            plans.append((chosen, plan))
    return plans
