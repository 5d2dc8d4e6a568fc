"""Time of a step with every figure in the middle of its range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpu_sim.prediction.recording import Recording
from hpu_sim.prediction.time_model import Clock

if TYPE_CHECKING:
    from hpu_sim.prediction.recording import StepRecording
    from hpu_sim.prediction.time_model import Mode, Timeline


def clock_of(step: StepRecording, generation: str = "GAUDI2", mode: Mode = "lazy") -> Clock:
    """Return the clock of a step on a box of 8."""
    recording = Recording(("",), 0, 8, 8, lazy=mode == "lazy", compiled=mode == "compile", steps=[step])
    return Clock(recording, generation)


def predict(step: StepRecording, generation: str = "GAUDI2", mode: Mode = "lazy") -> Timeline:
    """Return the timeline of a step."""
    return clock_of(step, generation, mode).timeline
