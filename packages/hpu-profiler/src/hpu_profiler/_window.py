"""One recording: torch's profiler from its warm-up until the trace is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import torch.profiler
from torch.profiler import ProfilerAction

from hpu_core import bridge
from hpu_profiler.trace.model import METADATA_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hpu_profiler._plan import Plan

# What the bridge counts and a trace should tell: in lazy mode the time that goes into compiling graphs.
_METRICS: Final = ("graph_compilation",)

_RECORDING: Final = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
# What torch can do after an action and lose nothing.
_FOLLOWERS: Final = {
    ProfilerAction.WARMUP: (ProfilerAction.WARMUP, *_RECORDING),
    ProfilerAction.RECORD: _RECORDING,
    ProfilerAction.RECORD_AND_SAVE: (ProfilerAction.NONE, ProfilerAction.WARMUP, *_RECORDING),
}


class Window:
    """Records steps of one kind.

    Args:
        options: For torch's profiler: everything but the schedule and what happens with the trace.
        plan: Says what is to be done with each step.
        kind: Of the steps; empty for a recording without steps, which ends when it is closed.
        first: What is to be done with the step that comes now.
        about: What the trace is to say of itself.
        on_ready: Is given torch's profiler when a trace is there.
    """

    def __init__(  # noqa: PLR0913 - a recording has these, and one place makes it
        self,
        options: Mapping[str, Any],
        *,
        plan: Plan,
        kind: str,
        first: ProfilerAction,
        about: Mapping[str, Any],
        on_ready: Callable[[Any], None],
    ) -> None:
        self.kind = kind
        self.is_over = False
        self._others = 0
        self._ended = 0
        self._plan = plan
        self._about = dict(about)
        self._action = first
        self._counted = _count() if about.get("on_card") else {}
        # torch's name is looked up here and not on import: up to 1.19 the bridge puts another class in its place.
        self.torch = torch.profiler.profile(**options, schedule=lambda _: self._action, on_trace_ready=on_ready)
        # So that "ProfilerStep#7" is the step with that number.
        self.torch.step_num = plan.done(kind)

    def open(self) -> None:
        """Begin."""
        self.torch.__enter__()

    def end_step(self) -> None:
        """Tell that a step of this kind has ended, after `Plan.end_step`."""
        following = self._plan.action(self.kind)
        self._ended = self._ended + 1 if self._action in _RECORDING else 0
        if following not in _FOLLOWERS[self._action]:
            # A schedule that forgets to save loses nothing, and torch is not asked for what it cannot do.
            self.close()
            return
        self._describe()
        if self._action is ProfilerAction.RECORD_AND_SAVE:
            self._ended = 0
        self._action = following
        # The mark of a step carries its number: torch counts before it makes the mark, and older ones after.
        self.torch.step_num = self._plan.done(self.kind) - (0 if _marks_before_counting() else 1)
        self.torch.step()
        if following is ProfilerAction.NONE:
            self.close()

    def note_other_step(self) -> int:
        """Count a step of another kind that ended meanwhile; return how many have."""
        self._others += 1
        return self._others

    def close(self, *, is_complete: bool = False) -> None:
        """End the recording here, whatever the schedule says; what was recorded becomes a trace.

        Args:
            is_complete: Whether no step is running: a recording that waited for one that never came leaves no trace.
        """
        if not self.is_over:
            self.is_over = True
            self._describe()
            if is_complete and self.kind and not self._ended:
                self.torch.on_trace_ready = None
            self.torch.__exit__(None, None, None)

    def _describe(self) -> None:
        """Write into the trace what it is; torch takes that while it records, and the last word counts."""
        if self._action not in _RECORDING:
            return
        counted = {
            name: {key: value - self._counted[name].get(key, 0) for key, value in now.items()}
            for name, now in (_count() if self._counted else {}).items()
        }
        # By this word TensorBoard's plugin knows Lightning's names for actions and modules.
        self.torch.add_metadata("Framework", "pytorch-lightning")
        # A step that is cut short has a mark in the trace as well; the number of whole ones tells them apart.
        self.torch.add_metadata_json(
            METADATA_KEY, json.dumps({**self._about, "steps": self._ended, "bridge_metrics": counted})
        )


def _marks_before_counting() -> bool:
    """Return whether torch gives a step's mark the number that it counts on from, as 2.0 to 2.2 do and 2.4 does not."""
    return "cur_step" in torch.profiler.profile.step.__code__.co_varnames


def _count() -> dict[str, dict[str, float]]:
    counted = {}
    for name in _METRICS:
        values = bridge.metric(name)
        # An average cannot be taken from another.
        counted[name] = {
            key: float(value)
            for key, value in values.items()
            if isinstance(value, int | float) and not key.startswith("Avg")
        }
    return counted
