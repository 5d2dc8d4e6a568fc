"""Training steps: one definition for the report of a run, the prediction of one of its steps, and plans.

A step contains one optimizer step and everything since the previous step: all micro-batches with gradient accumulation,
and all set-up in the first step.

Code that follows the optimizer step in the same loop iteration belongs to the same step: ``mark_step()``, reading the
loss, an occasional evaluation. The next step begins when execution takes the loop's back edge, that is, when the
program is above the call of the optimizer step again. An evaluation after the last step counts as part of that step.

Several optimizers that each step once share a step, such as generator and discriminator, or the parameter groups that
DeepSpeed steps one by one, though a loop may step them. A second step of the same optimizer begins a new training step,
and after the first steps also one of a new optimizer, unless it follows in the same iteration: that of the next model
that a program trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.common.frames import CallPath


class StepTracker:
    """Counter of training steps.

    Args:
        on_end: Function that is called at the end of each step.

    Attributes:
        step: Current step, counted from 1.
        finished: Number of steps with an optimizer step.
    """

    def __init__(self, on_end: Callable[[], None] = lambda: None) -> None:
        self._on_end = on_end
        self.step = 1
        self.finished = 0
        # Optimizers of this step, and those of the program as far as they are known.
        self._seen_optimizers: set[tuple[int, int]] = set()
        self._known_optimizers: set[tuple[int, int]] = set()
        self._step_path: CallPath | None = None

    @property
    def is_ending(self) -> bool:
        """Whether all optimizers have stepped: the loop's back edge ends the step."""
        return self._step_path is not None and self._seen_optimizers >= self._known_optimizers

    def on_optimizer_step(self, optimizer: Any, path: CallPath) -> None:
        """Record an optimizer step.

        Args:
            optimizer: The optimizer.
            path: Call path of the step; empty to ignore the position in the program.
        """
        # DeepSpeed steps one optimizer once per parameter group: the first parameter identifies the group.
        groups = optimizer.param_groups
        key = (id(optimizer), id(groups[0]["params"][0]) if groups and groups[0]["params"] else 0)
        if self._step_path is not None and key in self._seen_optimizers:
            self._known_optimizers = self._seen_optimizers
            self.end()
        is_new = self.finished > 1 and key not in self._known_optimizers
        if self._step_path is not None and is_new and _is_backward_jump(self._step_path, path):
            self.end()
        if self._step_path is None:
            self.finished += 1
        self._seen_optimizers.add(key)
        self._known_optimizers.add(key)
        self._step_path = path

    def on_event(self, path: CallPath) -> None:
        """Begin a new training step if the position of an event shows the loop's back edge."""
        if self.is_ending and path and _is_backward_jump(self._step_path or (), path):
            self.end()

    def end(self) -> None:
        """End the current step."""
        self.step += 1
        self._seen_optimizers = set()
        self._step_path = None
        self._on_end()


def _is_backward_jump(after: CallPath, now: CallPath) -> bool:
    """Return whether execution moved backwards in the innermost function that both call paths share.

    The bytecode of a loop body follows that of the loop header, as in the source.
    """
    for (code, offset), (code_now, offset_now) in zip(after, now, strict=False):
        if code != code_now:
            # Different functions called from the same position have no known order.
            return False
        if offset != offset_now:
            return offset_now < offset
    return True
