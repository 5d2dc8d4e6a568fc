"""The recorder of a process, and the training steps that a program marks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpu_sim.plan.recorder import PlanRecorder


_current: PlanRecorder | None = None


def current() -> PlanRecorder | None:
    """Return the recorder of this process; None if it plans nothing."""
    return _current


@contextlib.contextmanager
def set_current(recorder: PlanRecorder) -> Iterator[None]:
    """Make a recorder that of this process, in which one program runs at a time."""
    global _current  # noqa: PLW0603 - as above
    _current = recorder
    try:
        yield
    finally:
        _current = None


@contextlib.contextmanager
def step() -> Iterator[None]:
    """Mark a training step of a program without a Trainer, for `hpu-sim plan`.

    Without a plan it has no effect. A plan ends the program after the second marked step.
    """
    recorder = current()
    with recorder.marked_step() if recorder is not None else contextlib.nullcontext():
        yield
