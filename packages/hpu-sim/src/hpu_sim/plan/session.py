"""The recorder of a process, and the training steps that a program marks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Recorder(Protocol):
    """What programs use of the recorder, whose module imports this one.

    Attributes:
        notes: Limits of the recording.
    """

    notes: set[str]

    def marked_step(self) -> contextlib.AbstractContextManager[None]:
        """Take what the program does within as a step."""


#: Recorder of the program that this process plans; None if it plans nothing.
recorder: _Recorder | None = None


@contextlib.contextmanager
def step() -> Iterator[None]:
    """Mark a training step of a program without a Trainer, for `hpu-sim plan`.

    Without a plan it has no effect. A plan ends the program after the second marked step.
    """
    with recorder.marked_step() if recorder is not None else contextlib.nullcontext():
        yield
