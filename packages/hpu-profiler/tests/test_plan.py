"""Which steps are recorded."""

from collections.abc import Callable
from typing import Any

import pytest
import torch.profiler
from torch.profiler import ProfilerAction

from hpu_profiler._plan import Plan, check_schedule, default_schedule

_LETTERS = {"NONE": ".", "WARMUP": "w", "RECORD": "r", "RECORD_AND_SAVE": "S"}


def _plan(schedule: Callable[[int], ProfilerAction] | None, **options: Any) -> Plan:
    return Plan(schedule, **{"is_default": False, "most_steps": 100, "most_traces": 1, **options})


def _follow(plan: Plan, steps: int, kind: str = "training") -> str:
    """Return what is done with each of the steps, as letters."""
    done = []
    for _ in range(steps):
        done.append(_LETTERS[plan.action(kind).name])
        plan.end_step(kind)
    return "".join(done)


def test_the_default_passes_by_what_is_slow_at_first() -> None:
    """One step unseen, one to warm up, three recorded, and then no more."""
    assert _follow(_plan(default_schedule, is_default=True), 12) == ".wrrS......."


def test_more_traces_follow_where_there_is_room() -> None:
    """Then the schedule goes on."""
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)

    assert _follow(_plan(schedule, most_traces=2), 10) == ".wrS.wrS.."


def test_kinds_of_steps_count_apart() -> None:
    """A validation step does not bring the recording of training nearer."""
    plan = _plan(default_schedule)

    assert [_follow(plan, 2), _follow(plan, 3, "validation"), _follow(plan, 3)] == [".w", ".wr", "rrS"]


def test_without_a_schedule_everything_is_recorded_up_to_a_limit() -> None:
    """So that a long run does not fill the memory."""
    plan = _plan(None, most_steps=3)

    assert _follow(plan, 6) == "rrS..."
    assert plan.cut == {"training"}


def test_recordings_without_end_are_cut_into_traces() -> None:
    """Where more of them are wanted."""
    assert _follow(_plan(None, most_steps=2, most_traces=5), 6) == "rSrSrS"


@pytest.mark.parametrize(("is_default", "recorded"), [(True, "rrrr"), (False, ".wrr")])
def test_a_run_too_short_for_the_default_is_recorded_whole(is_default: bool, recorded: str) -> None:
    """A schedule of the user's is followed as it is."""
    plan = _plan(default_schedule, is_default=is_default)

    assert plan.expect("training", 4) is is_default
    assert _follow(plan, 4) == recorded


def test_a_run_that_is_long_enough_is_not_recorded_whole() -> None:
    """Five steps are enough for the default."""
    assert not _plan(default_schedule, is_default=True).expect("training", 5)


@pytest.mark.parametrize(
    ("schedule", "first"),
    [(None, 0), (torch.profiler.schedule(wait=7, warmup=1, active=1), 8), (lambda _: ProfilerAction.NONE, None)],
)
def test_the_first_recorded_step_can_be_told(schedule: Any, first: int | None) -> None:
    """For a warning where there were too few."""
    assert _plan(schedule).first_recorded() == first


@pytest.mark.parametrize(
    ("schedule", "message"),
    [(3, "`schedule` must be a function .* got 3"), (lambda _: "record", "must return .* got 'record'")],
)
def test_what_is_no_schedule_is_refused(schedule: Any, message: str) -> None:
    """While whoever wrote it is watching."""
    with pytest.raises(TypeError, match=message):
        check_schedule(schedule)
