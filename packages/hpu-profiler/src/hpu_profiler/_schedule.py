"""Schedules for torch.profiler.profile: which steps are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch.profiler
from torch.profiler import ProfilerAction

if TYPE_CHECKING:
    from collections.abc import Callable

#: Steps that a run needs for one trace by `default_schedule`.
MIN_DEFAULT_STEPS: Final = 5
RECORD_ACTIONS: Final = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
_MAX_LOOKAHEAD: Final = 100_000


def default_schedule() -> Callable[[int], ProfilerAction]:
    """Return PyTorchProfiler's schedule: skip one step, warm up for one, record three."""
    return torch.profiler.schedule(wait=1, warmup=1, active=3)


def validate_schedule(schedule: Any) -> None:
    """Raise unless a value is a schedule, "default" or None.

    Raises:
        TypeError: The value is neither, or it does not return a ProfilerAction for step 0.
    """
    if schedule is None or schedule == "default":
        return
    if not callable(schedule):
        raise TypeError(
            "`schedule` must be a function of a step's number, such as torch.profiler.schedule(...), 'default' or "
            f"None, got {schedule!r}"
        )
    action = schedule(0)
    if not isinstance(action, ProfilerAction):
        raise TypeError(f"`schedule` must return a torch.profiler.ProfilerAction, got {action!r} for step 0")


class StepSchedule:
    """Schedule with limits.

    It changes RECORD into RECORD_AND_SAVE where the trace reaches its limit, and where the wrapped schedule stops
    recording without saving, for which torch would discard the trace.

    Attributes:
        max_steps_per_trace: Number of recorded steps after which a trace ends.
        is_finished: Whether no further step will be recorded.
        was_limited: Whether a trace ended because of `max_steps_per_trace`.

    Args:
        schedule: Schedule to wrap; None to record every step.
        max_steps_per_trace: Number of recorded steps after which a trace ends.
    """

    def __init__(self, schedule: Callable[[int], ProfilerAction] | None, *, max_steps_per_trace: int) -> None:
        self.max_steps_per_trace = max_steps_per_trace
        self.is_finished = False
        self.was_limited = False
        self._schedule = schedule or (lambda _: ProfilerAction.RECORD)
        self._recorded = 0
        self._last_action = ProfilerAction.NONE

    def __call__(self, step: int) -> ProfilerAction:
        """Return the action for a step; torch calls this once at the start of each step."""
        if self._last_action is ProfilerAction.RECORD_AND_SAVE:
            self.end_trace()
        action = ProfilerAction.NONE if self.is_finished else self._schedule(step)
        if action is ProfilerAction.RECORD:
            self._recorded += 1
            if self._recorded >= self.max_steps_per_trace:
                self.was_limited = True
                action = ProfilerAction.RECORD_AND_SAVE
            elif self._schedule(step + 1) not in RECORD_ACTIONS:
                action = ProfilerAction.RECORD_AND_SAVE
        self._last_action = action
        return action

    def end_trace(self) -> None:
        """Count the current trace as written."""
        self.discard_trace()
        self.is_finished = True

    def discard_trace(self) -> None:
        """Forget the steps of the current trace."""
        self._recorded = 0
        self._last_action = ProfilerAction.NONE

    def first_recorded_step(self) -> int | None:
        """Return the number of the first recorded step; None if there is none."""
        return next((step for step in range(_MAX_LOOKAHEAD) if self._schedule(step) in RECORD_ACTIONS), None)
