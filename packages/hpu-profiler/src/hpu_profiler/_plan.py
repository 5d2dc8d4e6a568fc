"""Which steps are recorded: the schedule, followed for each kind of step by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from torch.profiler import ProfilerAction

if TYPE_CHECKING:
    from collections.abc import Callable

# Recording begins when the first steps, which are slower, are over.
_WAIT: Final = 1
_WARM_UP: Final = 1
_NEEDED: Final = _WAIT + _WARM_UP + 3
_RECORDING: Final = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
#: Steps that are looked ahead to tell when a schedule would have recorded.
_FAR: Final = 100_000


class Plan:
    """Says for each step whether it is recorded.

    A step of a kind ("training", "validation", ...) counts for that kind only. A recording that ends is followed by
    another one only where `most_traces` has room for more than one.

    Attributes:
        cut: Kinds of which a recording ended because of `most_steps`.

    Args:
        schedule: Gives the action for a step's number, as torch's schedules do; None to record every step.
        is_default: Whether nobody chose the schedule: a run that is too short for it is recorded as a whole.
        most_steps: Recorded steps after which a recording ends, whatever the schedule says.
        most_traces: Recordings of a kind.
    """

    def __init__(
        self, schedule: Callable[[int], ProfilerAction] | None, *, is_default: bool, most_steps: int, most_traces: int
    ) -> None:
        self._schedule = schedule
        self._is_default = is_default
        self._most_steps = most_steps
        self._goes_on = most_traces > 1
        self._done: dict[str, int] = {}
        self._finished: set[str] = set()
        self._whole: set[str] = set()
        self._recorded = 0
        self.cut: set[str] = set()

    def expect(self, kind: str, steps: float) -> bool:
        """Say how many steps of a kind there will be; return whether they are too few for the default schedule."""
        if not self._is_default or steps >= _NEEDED:
            return False
        self._whole.add(kind)
        return True

    def done(self, kind: str) -> int:
        """Return how many steps of a kind have ended, which is the number of the next one."""
        return self._done.get(kind, 0)

    def is_finished(self, kind: str) -> bool:
        """Return whether no step of a kind will be recorded any more."""
        return kind in self._finished

    def end_step(self, kind: str) -> None:
        """Count a step."""
        self._done[kind] = self.done(kind) + 1

    def action(self, kind: str) -> ProfilerAction:
        """Return what is to be done with the next step of a kind."""
        if kind in self._finished:
            return ProfilerAction.NONE
        action = self._scheduled(kind)
        if action in _RECORDING:
            self._recorded += 1
            if action is ProfilerAction.RECORD and self._recorded >= self._most_steps:
                self.cut.add(kind)
                action = ProfilerAction.RECORD_AND_SAVE
        if action is ProfilerAction.RECORD_AND_SAVE:
            self._end_recording(kind)
        return action

    def cut_short(self, kind: str) -> None:
        """Say that a recording has ended before its time, because of too many other steps."""
        self.cut.add(kind)
        self._end_recording(kind)

    def first_recorded(self) -> int | None:
        """Return how many steps pass before the first that the schedule records; None if it never does."""
        if self._schedule is None:
            return 0
        return next((step for step in range(_FAR) if self._schedule(step) in _RECORDING), None)

    def _end_recording(self, kind: str) -> None:
        self._recorded = 0
        if not self._goes_on:
            self._finished.add(kind)

    def _scheduled(self, kind: str) -> ProfilerAction:
        if self._schedule is None or kind in self._whole:
            return ProfilerAction.RECORD
        return self._schedule(self.done(kind))


def default_schedule(step: int) -> ProfilerAction:
    """Return what is to be done with a step by default: one unseen, one to warm up, three recorded, as PyTorchProfiler.

    A function of this module, where torch's are closures: a Trainer that starts its processes itself pickles profilers.
    """
    position = step % _NEEDED
    if position < _WAIT + _WARM_UP:
        return ProfilerAction.NONE if position < _WAIT else ProfilerAction.WARMUP
    return ProfilerAction.RECORD if position < _NEEDED - 1 else ProfilerAction.RECORD_AND_SAVE


def check_schedule(schedule: Any) -> None:
    """Refuse what is no schedule.

    Raises:
        TypeError: It cannot be called with a step's number, or gives something else than an action of torch's.
    """
    if schedule is None:
        return
    if not callable(schedule):
        raise TypeError(
            f"`schedule` must be a function of a step's number, such as torch.profiler.schedule(...), got {schedule!r}"
        )
    action = schedule(0)
    if not isinstance(action, ProfilerAction):
        raise TypeError(f"`schedule` must return a torch.profiler.ProfilerAction, got {action!r} for step 0")
