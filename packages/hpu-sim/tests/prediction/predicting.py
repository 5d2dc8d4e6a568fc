"""Time of a step with every figure in the middle of its range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpu_sim.prediction.hardware import hardware
from hpu_sim.prediction.time_model import Schedule

if TYPE_CHECKING:
    from hpu_sim.prediction.recording import StepRecording
    from hpu_sim.prediction.time_model import Mode, Timeline


def predict(step: StepRecording, generation: str, devices: int, mode: Mode) -> Timeline:
    """Return the timeline of a step."""
    return Schedule(step, hardware(generation), devices, mode).timeline()
