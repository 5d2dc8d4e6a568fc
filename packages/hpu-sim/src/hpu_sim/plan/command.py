"""Planning of a program, or of recordings, with every choice that a user names, and what is written of it."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import sys
from typing import TYPE_CHECKING, Final

import click

from hpu_sim.plan import compare, search, view
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.schema import Plan
from hpu_sim.plan.worker import Worker
from hpu_sim.prediction import chrome_trace, recording_file
from hpu_sim.process import activation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hpu_sim.device.config import SimConfig
    from hpu_sim.plan.options import Options
    from hpu_sim.plan.schema import StrategyPlan
    from hpu_sim.prediction.recording import Recording

    Record = Callable[[Options], Recording]

#: Strategies of `--compare`; None is the program's own.
STRATEGIES: Final = (None, "auto", "deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3")
#: Exit codes if no plan fits, and if the program cannot be planned.
OUT_OF_MEMORY: Final = 1
CANNOT_PLAN: Final = 2
#: File that stands for the standard output.
STDOUT: Final = "-"
# Recordings that are kept, of about 40 MB each for a model of a billion parameters.
_KEPT: Final = 12


@dataclasses.dataclass(frozen=True)
class Request:
    """What a user asks of a plan.

    Attributes:
        choices: Options of each candidate.
        generations: Generations.
        prices: Price of a card hour by generation; "" for all others.
        finds_batch: Whether to plan the largest batch size that fits, for each candidate.
        ranks_best: Whether the best plan comes first.
        command: What is shown as the program; empty for the program itself.
        html: File for a page; None for none, as for all files.
        json: File for JSON; :data:`STDOUT` to print it instead of the table.
        trace: File for the predicted step of the first row as a Chrome trace.
        recording: File for the recordings, of which a plan can be made again.
    """

    choices: tuple[Options, ...]
    generations: tuple[str, ...]
    prices: Mapping[str, float] = dataclasses.field(default_factory=dict)
    finds_batch: bool = False
    ranks_best: bool = False
    command: tuple[str, ...] = ()
    html: Path | None = None
    json: str | None = None
    trace: Path | None = None
    recording: Path | None = None


def run(
    config: SimConfig, request: Request, program: str, arguments: Sequence[str], *, shows_output: bool = False
) -> int:
    """Plan a program, print the table and return 0 if a plan fits, 1 if none does, 2 if it cannot be planned."""
    activation.activate(config.devices, config.generation, config.release.version)
    worker = Worker(program, arguments, shows_output=shows_output)
    try:
        plans, recordings = make_plans(functools.lru_cache(_KEPT)(worker.record), request)
    except PlanError as error:
        click.echo(f"Error: {error}", err=True)
        return CANNOT_PLAN
    return _write(plans, recordings, request)


def run_recordings(recordings: Sequence[Recording], request: Request) -> int:
    """Plan saved recordings, print the table and return 0 if a plan fits, 1 if none does."""
    plans = [
        compare.strategy_plan(compare.clock_of(each, generation), request.prices)
        for each in recordings
        for generation in request.generations
    ]
    return _write(plans, recordings, request)


def _write(plans: Sequence[StrategyPlan], recordings: Sequence[Recording], request: Request) -> int:
    """Write what is asked of plans, and the table; return the exit code."""
    plan = Plan(command=request.command or recordings[0].command, strategies=tuple(plans))
    document = view.document(plan)
    if request.html is not None:
        request.html.write_text(document.html(), encoding="utf-8")
    if request.trace is not None:
        trace = chrome_trace.trace_of(compare.clock_of(recordings[0], plans[0].generation))
        request.trace.write_text(json.dumps(trace) + "\n", encoding="utf-8")
    if request.recording is not None:
        recording_file.save(recordings, request.recording)
    if request.json is not None:
        with click.open_file(request.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(plan.to_dict(), indent=1) + "\n")
    if request.json != STDOUT:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(document.text(width))
    return 0 if plan.fits else OUT_OF_MEMORY


def make_plans(record: Record, request: Request) -> tuple[list[StrategyPlan], list[Recording]]:
    """Return the plan of each choice and generation, and recordings: all, or the first one where plans are ranked.

    Raises:
        PlanError: If no choice can be planned, as the first of them says.
    """
    plans: list[StrategyPlan] = []
    kept: dict[int, Recording] = {}
    failed: list[str] = []
    seen = set()
    for options in request.choices:
        try:
            recording = record(options)
        except PlanError as error:
            if options is request.choices[-1] and not plans:
                raise
            *_, message = str(error).splitlines()
            failed.append(f"{options.strategy or 'the program'} {options.changes} cannot be planned: {message}")
            continue
        for generation in request.generations:
            key = recording.strategy, options.changes, generation
            if key in seen:
                continue
            seen.add(key)
            largest = search.find_batch(record, options, generation) if request.finds_batch else None
            chosen, found = largest or (options, recording)
            plan = compare.strategy_plan(compare.clock_of(found, generation), request.prices)
            plan = dataclasses.replace(plan, settings=chosen.changes)
            plans.append(plan)
            if request.finds_batch and largest is None:
                plan.notes.append(f"No batch fits on {generation}, not even one sample; the plan is the script's.")
            if not (kept and request.ranks_best):
                kept[id(found)] = found
    plans[0].notes.extend(failed)
    return (sorted(plans, key=_rank) if request.ranks_best else plans), list(kept.values())


def _rank(plan: StrategyPlan) -> tuple[bool, float]:
    """Return by what the best plan comes first: those that fit, by cost per sample if there are prices, else time."""
    rate, samples = plan.rate, max(plan.rate.samples, 1)
    cost = sum(rate.cost) if rate.price else plan.step.seconds / samples
    return not plan.fits, cost
