"""The command `hpu-sim plan`, after its options are validated."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import sys
from typing import TYPE_CHECKING, Final

import click

from hpu_sim.plan.errors import PlanError, ProgramError
from hpu_sim.plan.progress import Progress
from hpu_sim.plan.runner import CANNOT_PLAN, DOES_NOT_FIT
from hpu_sim.plan.schema import Plan
from hpu_sim.plan.worker import Worker
from hpu_sim.prediction import zero
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


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Files that a plan is written to, beside the table on the terminal.

    Attributes:
        html: Page; None for none, as of all of them.
        json: Plan as JSON.
        trace: Predicted step as a Chrome trace.
        recording: Recordings, of which a plan can be made again.
    """

    html: Path | None = None
    json: Path | None = None
    trace: Path | None = None
    recording: Path | None = None

    def write(self, plan: Plan, recordings: Sequence[Recording], traced: Recording) -> None:
        """Write the files and the table.

        Args:
            plan: Plan.
            recordings: What it was made of.
            traced: Recording whose step is traced.
        """
        from hpu_sim.plan import html, text
        from hpu_sim.prediction import chrome_trace, recording_file

        if self.html is not None:
            self.html.write_text(html.render(plan), encoding="utf-8")
        if self.json is not None:
            self.json.write_text(json.dumps(plan.to_dict(), indent=1) + "\n", encoding="utf-8")
        if self.trace is not None:
            trace = chrome_trace.trace_of_recording(traced, plan.strategies[0].generation)
            self.trace.write_text(json.dumps(trace) + "\n", encoding="utf-8")
        if self.recording is not None:
            recording_file.save(recordings, self.recording)
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(text.render(plan, width))


def make_planner(record: Callable[[Options], Recording]) -> Callable[[Options], Recording]:
    """Return a function that records a program, which runs again for each choice that changes what it does."""

    @functools.cache
    def plan(options: Options) -> Recording:
        if options.strategy in zero.STAGES and zero.is_modelled(options.strategy):
            return zero.apply(plan(dataclasses.replace(options, strategy="auto")), options.strategy)
        return record(options)

    return plan


def run(  # noqa: PLR0913 - one argument per option
    configs: Sequence[SimConfig],
    choices: Sequence[Options],
    program: str,
    arguments: Sequence[str],
    *,
    shows_output: bool = False,
    outputs: Outputs,
) -> int:
    """Plan a program, print the table and return 0 if a plan fits, 1 if none does, 2 if it cannot be planned."""
    first = configs[0]
    activation.activate(first.devices, first.generation, first.release.version)

    progress = Progress()
    planner = make_planner(Worker(program, arguments, progress.show, shows_output=shows_output).record)
    try:
        plans = _make_plans(planner, choices, [each.generation for each in configs])
        plan = Plan(command=planner(choices[0]).command, strategies=tuple(each for _, each in plans))
        ranks = [dataclasses.replace(options, rank=rank.rank) for options, each in plans for rank in each.ranks]
        recordings = [planner(each) for each in dict.fromkeys(ranks)]
        traced = planner(dataclasses.replace(plans[0][0], rank=plan.strategies[0].rank))
    except PlanError as error:
        progress.end()
        click.echo(f"Error: {error}", err=True)
        return CANNOT_PLAN
    except ProgramError as error:
        progress.end()
        click.echo(f"Error: the program itself failed, before its training steps were known:\n{error}", err=True)
        return CANNOT_PLAN
    progress.end()
    outputs.write(plan, recordings, traced)
    return 0 if plan.fits else DOES_NOT_FIT


def run_recordings(
    recordings: Sequence[Recording], generations: Sequence[str], options: Options, outputs: Outputs
) -> int:
    """Plan saved recordings, print the table and return 0 if a plan fits, 1 if none does."""
    from hpu_sim.plan import compare

    plans = []
    given = options.planned_samples, options.loader_rate
    groups: dict[tuple[str, int, int, str], list[Recording]] = {}
    for each in recordings:
        groups.setdefault((each.strategy, each.world_size, each.devices, each.precision), []).append(each)
    for group in groups.values():
        for generation in generations:
            ranks = [compare.strategy_plan(each, generation, *given) for each in group]
            plans.append(_worst(ranks))
    plan = Plan(command=recordings[0].command, strategies=tuple(plans))
    traced = next(each for each in recordings if each.rank == plans[0].rank)
    outputs.write(plan, recordings, traced)
    return 0 if plan.fits else DOES_NOT_FIT


def _worst(plans: Sequence[StrategyPlan]) -> StrategyPlan:
    """Return the plan of the rank with most memory."""
    worst = max(plans, key=lambda plan: plan.memory.peak_bytes)
    return dataclasses.replace(worst, ranks=tuple(rank for plan in plans for rank in plan.ranks))


def with_ranks(
    record: Callable[[Options], Recording], options: Options, recording: Recording, generation: str
) -> StrategyPlan:
    """Return the plan of the rank with most memory, of the recorded one and the last one of each group."""
    from hpu_sim.plan import compare

    recordings = [recording]
    # The model of ZeRO is that of any rank.
    if not options.only_rank and recording.strategy not in zero.STAGES:
        recordings += [record(dataclasses.replace(options, rank=rank)) for rank in compare.representatives(recording)]
    given = options.planned_samples, options.loader_rate
    return _worst([compare.strategy_plan(each, generation, *given) for each in recordings])


def _make_plans(
    planner: Callable[[Options], Recording], choices: Sequence[Options], generations: Sequence[str]
) -> list[tuple[Options, StrategyPlan]]:
    """Return the options and the plan of each strategy and generation."""
    from hpu_sim.plan import search

    plans: list[tuple[Options, StrategyPlan]] = []
    first: tuple[Recording, str] | None = None
    seen = set()
    for options in choices:
        for generation in generations:
            chosen, recording = options, planner(options)
            if (recording.strategy, generation) in seen:
                continue
            seen.add((recording.strategy, generation))
            notes: tuple[str, ...] = ()
            if options.finds_batch:
                found = search.find_batch(planner, options, generation)
                if found is not None:
                    chosen, recording = found
                else:
                    notes = (f"No batch fits on {generation}, not even one sample per card; the plan is the script's.",)
            plan = with_ranks(planner, chosen, recording, generation)
            if not plan.fits and len(choices) == 1:
                advice, left_out = search.advise(planner, chosen, recording, generation)
                plan = dataclasses.replace(plan, advice=advice)
                notes += left_out
            elif not plan.fits:
                notes += ("Plan a strategy that does not fit alone for changes with which it does.",)
            relative = None if first is None else search.per_sample((recording, generation), first)
            first = first or (recording, generation)
            plan = dataclasses.replace(plan, notes=(*plan.notes, *notes), relative=relative)
            plans.append((chosen, plan))
    return plans
