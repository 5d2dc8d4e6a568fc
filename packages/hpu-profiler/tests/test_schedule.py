"""Schedules with limits."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch.profiler
from torch.profiler import ProfilerAction

from hpu_profiler._schedule import StepSchedule, validate_schedule

_LETTERS = {"NONE": ".", "WARMUP": "w", "RECORD": "r", "RECORD_AND_SAVE": "S"}


def _actions(schedule: Callable[[int], ProfilerAction] | None, steps: int) -> str:
    """Return the action for each step, as letters."""
    limited = StepSchedule(schedule, max_steps_per_trace=100)
    return "".join(_LETTERS[limited(step).name] for step in range(steps))


@pytest.mark.parametrize("following", [ProfilerAction.NONE, ProfilerAction.WARMUP])
def test_trace_is_saved_if_the_schedule_omits_it(following: ProfilerAction) -> None:
    """Torch discards a trace if RECORD is followed by NONE or WARMUP."""

    def schedule(step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if step in {1, 2} else following

    assert _actions(schedule, 4)[1:3] == "rS"


def test_discarded_trace_does_not_finish_the_schedule() -> None:
    schedule = StepSchedule(None, max_steps_per_trace=1)

    assert schedule(0) is ProfilerAction.RECORD_AND_SAVE
    schedule.discard_trace()
    assert schedule(1) is ProfilerAction.RECORD_AND_SAVE


def test_torch_accepts_all_transitions() -> None:
    """Torch has an action for each pair of consecutive results."""
    transitions = torch.profiler.profile().action_map
    for warmup, active, limit in itertools.product((0, 1), (1, 3), (1, 2, 9)):
        wrapped = torch.profiler.schedule(wait=1, warmup=warmup, active=active)
        schedule = StepSchedule(wrapped, max_steps_per_trace=limit)
        actions = [schedule(step) for step in range(12)]

        assert set(itertools.pairwise(actions)) <= set(transitions)
        assert (ProfilerAction.RECORD, ProfilerAction.NONE) not in itertools.pairwise(actions)


@pytest.mark.parametrize(
    ("schedule", "first"),
    [(None, 0), (torch.profiler.schedule(wait=7, warmup=1, active=1), 8), (lambda _: ProfilerAction.NONE, None)],
)
def test_first_recorded_step_is_found(schedule: Any, first: int | None) -> None:
    assert StepSchedule(schedule, max_steps_per_trace=9).first_recorded_step() == first


@pytest.mark.parametrize(
    ("schedule", "message"),
    [(3, "`schedule` must be a function .* got 3"), (lambda _: "record", "must return .* got 'record'")],
)
def test_other_values_are_rejected(schedule: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        validate_schedule(schedule)
