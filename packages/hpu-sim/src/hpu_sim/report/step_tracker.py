"""Where one training step ends and the next begins.

A step ends with an optimizer step. Everything since the step before is part of it: with gradient accumulation all
micro-batches, in the first step also what came before it, such as moving the model to the card.

What follows the optimizer step in the same round of the training loop still belongs to it: ``mark_step()``, reading the
loss, an evaluation now and then. The program tells by its position that it has come round: it is then above the place
from which the optimizer step was called. An evaluation in a function of its own after the last step counts as part of
that step.

Optimizers that step one after the other, each once, end one step together: generator and discriminator, the parameter
groups that DeepSpeed steps one by one. An optimizer that steps again ends another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

_CallPath = tuple[tuple[int, int], ...]


class StepTracker:
    """Numbers the steps of a training.

    Attributes:
        number: The step that goes on now, from 1.
        finished: Steps that ended.
    """

    def __init__(self) -> None:
        self.step = 1
        self.finished = 0
        self._seen_optimizers: set[tuple[int, int]] = set()
        self._step_path: _CallPath | None = None

    def on_optimizer_step(self, optimizer: Any, frame: FrameType | None) -> bool:
        """Note that an optimizer has made a step.

        Args:
            optimizer: The optimizer.
            frame: What Python is running.

        Returns:
            Whether a step before this one has ended with that, because the optimizer had already stepped in it.
        """
        # The first parameter tells apart the groups of an optimizer that is given one after the other.
        groups = optimizer.param_groups
        key = (id(optimizer), id(groups[0]["params"][0]) if groups and groups[0]["params"] else 0)
        is_next_step = self._step_path is not None and key in self._seen_optimizers
        if is_next_step:
            self._next_step()
        if self._step_path is None:
            self.finished += 1
        self._seen_optimizers.add(key)
        self._step_path = _call_path(frame)
        return is_next_step

    def on_event(self, frame: FrameType | None) -> bool:
        """Look at what the program is doing.

        Args:
            frame: What Python is running; None where that is not known.

        Returns:
            Whether the next step has begun with that.
        """
        if self._step_path is None or frame is None or not _took_back_edge(self._step_path, _call_path(frame)):
            return False
        self._next_step()
        return True

    def _next_step(self) -> None:
        self.step += 1
        self._seen_optimizers.clear()
        self._step_path = None


def _call_path(frame: FrameType | None) -> _CallPath:
    """Return for each function that is running which it is and how far it has come, the outermost first."""
    position = []
    while frame is not None:
        position.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    position.reverse()
    return tuple(position)


def _took_back_edge(after: _CallPath, now: _CallPath) -> bool:
    """Return whether the program is no longer behind the position ``after`` in the function that both have in common.

    A loop's body lies behind its beginning in the bytecode as it does in the source.
    """
    for (code, offset), (code_now, offset_now) in zip(after, now, strict=False):
        if code != code_now:
            # Another function, called from the same place: which comes first is not to be seen.
            return False
        if offset != offset_now:
            return offset_now < offset
    return True
